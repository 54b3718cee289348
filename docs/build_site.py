"""Hooks of `mkdocs build`: generated pages, links and typeset formulas.

Pages stay as a reader of the repository sees them; here links that leave `docs/` find their place
on the site, tutorials become pages with their outputs, and every module gets its reference.
"""

import ast
import base64
import html
import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from nclab.errors import NclabError
from nclab.report.pages import as_mathml

ROOT = Path(__file__).parent.parent
DOCS, SOURCE = ROOT / "docs", ROOT / "src"
ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(?<!\\)(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s:]+?)(#[^)\s]*)?\)")
TAG = re.compile(r"(<[^>]*>)")
VERBATIM = {"code", "pre", "math", "script", "style", "svg"}
LETTER = r"(?:(?<=‖)|(?<=\b[^\W\d_])|(?<=[\u0300-\u036f]))"
INDEX = re.compile(rf"_\{{([^{{}}]*)\}}|{LETTER}_(\*|[^\W_²³ᵀ]{{1,2}})(?![^\W²³ᵀ])")
POWER = re.compile(r"\^\{([^{}]*)\}")
MATH = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_config(config: Any) -> Any:
    """Fill the sections of the navigation that list a whole folder."""
    packages = [{name: f"reference/{name}.md"} for name in public_names()]
    papers = _pages_of("experiments")
    folders: dict[str, list[Any]] = {
        "Experiments": ["experiments/index.md", *papers],
        "Reference": [
            "reference/index.md",
            {"Command line": "reference/command_line.md"},
            *packages,
        ],
        "Design": ["design/index.md", *_pages_of("design")],
    }
    config.nav = _filled(config.nav, folders)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    made: dict[str, str | bytes] = {
        own: _moved((ROOT / name).read_text(), name) for name, own in ROOT_PAGES.items()
    }
    made["license.md"] = f"# Licence\n\n```text\n{(ROOT / 'LICENSE').read_text()}```\n"
    for notebook in sorted(DOCS.rglob("*.ipynb")):
        made.update(_notebook(notebook))
    made["experiments/index.md"] = _listing(
        "Experiments",
        "Each with its claim, command, result over seeds, verdicts and differences from the paper.",
        "experiments",
    )
    made["design/index.md"] = _listing(
        "Design notes", "Why it is built as it is, for decisions a reader would question.", "design"
    )
    made["examples.md"] = _examples()
    made["gallery.md"] = _gallery()
    made["reference/command_line.md"] = _command_line()
    made["reference/index.md"] = _reference_index()
    for package, names in public_names().items():
        made[f"reference/{package}.md"] = _package_page(package, names)
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    hidden = [file for file in files if file.src_uri.endswith(".ipynb")]
    for file in hidden:
        files.remove(file)
    return files


def on_page_markdown(markdown: str, *, page: Any, **kwargs: Any) -> str:
    """Rewrite links of the repository as links of the site."""
    return _relinked(markdown, Path("docs", page.file.src_uri).parent)


def on_page_content(content: str, *, page: Any, **kwargs: Any) -> str:
    """Typeset formulas as MathML, which browsers display without a script."""

    def typeset(match: re.Match[str]) -> str:
        try:
            made = as_mathml(html.unescape(match[2]), block=match[1] == "div")
            # Long ones scroll, and a keyboard must reach what scrolls.
            return made.replace("<math ", '<math tabindex="0" ', 1) if match[1] == "div" else made
        except NclabError as error:
            raise PluginError(f"{page.file.src_uri}: {error}") from error

    return _indices(MATH.sub(typeset, content))


def on_post_page(output: str, **kwargs: Any) -> str:
    """Add labels for screen readers where the theme has none."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def _indices(content: str) -> str:
    """Typeset formulas within a sentence, such as h_c or D^{1/2}, with sub- and superscripts."""
    inside: list[str] = []
    parts = TAG.split(content)
    for place, part in enumerate(parts):
        if place % 2:
            name = part.strip("</>").split()[0].lower() if part.strip("</>") else ""
            if name in VERBATIM and not part.endswith("/>"):
                inside = inside[:-1] if part.startswith("</") else [*inside, name]
        elif not inside:
            low = INDEX.sub(lambda found: f"<sub>{found[1] or found[2]}</sub>", part)
            parts[place] = POWER.sub(r"<sup>\1</sup>", low)
    return "".join(parts)


def _relinked(markdown: str, folder: Path) -> str:
    """Rewrite the links of a page from `folder` of the repository for the site."""
    here = folder.relative_to("docs") if folder.parts[:1] == ("docs",) else Path(".")

    def lead(match: re.Match[str]) -> str:
        image, text, address, anchor = match[1], match[2], match[3], match[4] or ""
        target = Path(os.path.normpath(folder / address))
        if target.parts[:1] == ("src",) and not image:
            return _reference_link(text, target).replace("@", f"{os.path.relpath('.', here)}/")
        own = _on_site(target)
        if own is None:
            return match[0]
        if re.fullmatch(r"[\w/]+\.md", text) and (ROOT / target).is_file():
            text = _title(ROOT / target)  # a file's name says little on a page
        return f"{image}[{text}]({os.path.relpath(own[0], here)}{own[1] or anchor})"

    parts = re.split(r"(^ *```.*?^ *```|`[^`\n]+`(?!\]))", markdown, flags=re.MULTILINE | re.DOTALL)
    fences = re.compile(r"^ *```")
    return "".join(part if fences.match(part) else LINK.sub(lead, part) for part in parts)


def _on_site(target: Path) -> tuple[str, str] | None:
    """Return the page and heading of a repository file on the site; None for other links."""
    name = target.as_posix()
    if name in ROOT_PAGES:
        return ROOT_PAGES[name], ""
    if name == "LICENSE":
        return "license.md", ""
    if name == "README.md":
        return "index.md", ""
    if target.parts[0] == "examples":
        return "examples.md", f"#{target.stem}" if target.suffix else ""
    if target.parts[0] != "docs":
        return None
    own = Path(*target.parts[1:])
    if target.suffix == ".ipynb":
        return own.with_suffix(".md").as_posix(), ""
    if (ROOT / target).is_dir():
        return (own / "index.md").as_posix(), ""
    return own.as_posix(), ""


def _reference_link(text: str, target: Path) -> str:
    """Return a link to the reference of a package or exported name, otherwise the plain text."""
    package = ".".join(target.parts[1:])
    if package in public_names():
        return f"[{text}](@reference/{package}.md)"
    name = re.fullmatch(r"`(\w+)`", text)
    module = ".".join(target.with_suffix("").parts[1:])
    if name and any(
        name[1] in names and module.startswith(package) for package, names in public_names().items()
    ):
        return f"[{text}][{module}.{name[1]}]"
    return text


def _moved(markdown: str, name: str) -> str:
    """Return a page of the root folder as a page of `docs/`."""
    return _relinked(markdown, Path(name).parent)


def _notebook(file: Path) -> Iterator[tuple[str, str | bytes]]:
    """Return a tutorial as a page, and its pictures as separate files."""
    stem = file.relative_to(DOCS).with_suffix("").as_posix()
    parts = []
    for cell in nbformat.read(file, as_version=4).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        streams = "".join(one.text for one in cell.outputs if one.output_type == "stream")
        if streams:
            parts.append(_shown_text(streams))
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{stem}-{cell.id.rpartition('-')[2]}.png"
                yield name, base64.b64decode(data["image/png"])
                size = output.metadata["image/png"]
                image = f"![{html.escape(cell.source.splitlines()[-1])}]({Path(name).name})"
                parts.append(f'{image}{{ width="{size["width"]}" }}')
            elif "text/html" in data:
                table = re.sub(r"<style.*?</style>", "", data["text/html"], flags=re.DOTALL)
                flat = re.sub(r"\n\s*", "", table)
                parts.append(f'<div class="output">{flat}</div>')
            elif data:
                parts.append(_shown_text(data["text/plain"]))
    parts.append(
        "*A notebook of the repository, "
        f"`docs/{stem}.ipynb`; the tests run it in a Jupyter kernel.*"
    )
    yield f"{stem}.md", "\n\n".join(parts) + "\n"


def _shown_text(text: str) -> str:
    return f'<div class="output"><pre><code>{html.escape(text.rstrip())}</code></pre></div>'


def _pages_of(folder: str) -> list[str]:
    return [file.relative_to(DOCS).as_posix() for file in sorted((DOCS / folder).glob("*.md"))]


def _title(file: Path) -> str:
    return re.sub(r"^# ", "", file.read_text().split("\n", 1)[0])


def _listing(title: str, words: str, folder: str) -> str:
    files = [DOCS / name for name in _pages_of(folder)]
    rows = [f"- [{_title(file)}]({file.name})" for file in files]
    return f"# {title}\n\n{words}\n\n" + "\n".join(rows) + "\n"


def _examples() -> str:
    parts = ["# Scripts to start from\n\nFiles of `examples/`; the tests run every one.\n"]
    for file in sorted((ROOT / "examples").glob("*.py")):
        text = file.read_text()
        body = text.split('"""', 2)[2].strip()
        words, _, usage = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")
        usage = usage and f"```text\n{usage}\n```\n\n"
        heading = f"## `{file.name}` {{ #{file.stem} }}"
        parts.append(f"{heading}\n\n{words}\n\n{usage}```python\n{body}\n```\n")
    return "\n".join(parts)


def _gallery() -> str:
    """Return the gallery: every picture with the code or the command that draws it."""
    parts = ["# Gallery\n\nEvery picture with what draws it.\n\n## From Python\n"]
    for file in sorted(DOCS.rglob("*.ipynb")):
        stem = file.relative_to(DOCS).with_suffix("").as_posix()
        cells = list(nbformat.read(file, as_version=4).cells)
        for cell in cells:
            if any("image/png" in one.get("data", {}) for one in cell.get("outputs", ())):
                name = f"{stem}-{cell.id.rpartition('-')[2]}.png"
                words = cells[0].source.split("\n")[0].removeprefix("# ")
                link = f"From the tutorial [{words}]({stem}.md)."
                image = f"![{html.escape(cell.source)}]({name})"
                code = "\n".join([*_origin(cell, cells), cell.source])
                parts.append(f"```python\n{code}\n```\n\n{image}\n\n{link}\n")
    parts.append('## From the papers\n\n<div class="gallery" markdown>\n')
    for page in sorted((DOCS / "experiments").glob("*.md")):
        for words, image in re.findall(r"!\[([^\]]*)\]\((images/[^)]+)\)", page.read_text()):
            about = f"[{_title(page)}](experiments/{page.name}), `nclab reproduce {page.stem}`"
            parts.append(
                f"<div markdown>\n\n![{words}](experiments/{image})\n\n{about}\n\n</div>\n"
            )
    parts.append("</div>\n\n## From the command line\n")
    commands = {
        "report": "nclab report runs",
        "live": "nclab serve runs",
    }
    for name, command in commands.items():
        parts.append(f"`{command}`\n\n![What {command} shows](images/{name}.png)\n")
    return "\n".join(parts)


def _origin(cell: Any, cells: list[Any]) -> list[str]:
    """Return the statement that created the plotted object, `target = …` before `target.plot()`."""
    name = re.split(r"\W", cell.source)[0]
    before = [one.source for one in cells[: cells.index(cell)] if one.cell_type == "code"]
    made = [node for source in before for node in ast.parse(source).body]
    owners = [node for node in made if isinstance(node, ast.Assign)]
    return [ast.unparse(node) for node in owners if ast.unparse(node.targets[0]) == name][-1:]


def _command_line() -> str:
    """Return the page with the help texts of all commands."""
    import typer
    from typer.testing import CliRunner

    from nclab.cli.main import app

    runner = CliRunner(env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"})
    group: Any = typer.main.get_command(app)
    parts = ["# The command line\n\nWhat every command says of itself with `--help`.\n"]
    for name in ["", *sorted(group.commands)]:
        words = [name, "--help"] if name else ["--help"]
        said = runner.invoke(app, words, prog_name="nclab").output
        plain = "\n".join(line.rstrip() for line in said.strip("\n").splitlines())
        parts.append(f"## nclab {name}".rstrip() + f"\n\n```text\n{plain}\n```\n")
    return "\n".join(parts)


@cache
def public_names() -> dict[str, tuple[str, ...]]:
    """Return the names in `__all__` of every package of the library, by package.

    >>> "nc1_trace_ratio" in public_names()["nclab.metrics"]
    True
    """
    exported = {}
    for file in sorted((SOURCE / "nclab").rglob("__init__.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names = ast.literal_eval(node.value)
                package = ".".join(file.parent.relative_to(SOURCE).parts)
                exported[package] = tuple(sorted(names, key=str.lower))
    return exported


def _reference_index() -> str:
    """Return the page that lists the public packages with the names that each exports."""
    parts = ["# Reference\n\nEvery public name, by the package that exports it.\n"]
    for package, names in public_names().items():
        parts.append(f"## [`{package}`]({package}.md)\n\n{_about(package).splitlines()[0]}\n")
        parts.append(", ".join(_linked(package, name) for name in names) + "\n")
    return "\n".join(parts)


def _linked(package: str, name: str) -> str:
    """Return a link to an exported name; a subpackage has a page of its own."""
    if f"{package}.{name}" in public_names():
        return f"[`{name}`]({package}.{name}.md)"
    return f"[`{name}`][{package}.{name}]"


def _package_page(package: str, names: Sequence[str]) -> str:
    """Return the reference page of one package: every exported name with its docstring."""
    shown = [name for name in names if f"{package}.{name}" not in public_names()]
    return (
        "\n\n".join([f"# {package}", _about(package), *(f"::: {package}.{name}" for name in shown)])
        + "\n"
    )


def _about(package: str) -> str:
    """Return the docstring of a package."""
    file = SOURCE.joinpath(*package.split("."), "__init__.py")
    return ast.get_docstring(ast.parse(file.read_text())) or ""


def _filled(nav: list[Any], folders: dict[str, list[Any]]) -> list[Any]:
    found: list[Any] = []
    for entry in nav:
        [(title, inside)] = entry.items()
        if title in folders:
            found.append({title: folders[title]})
        elif isinstance(inside, list):
            found.append({title: _filled(inside, folders)})
        else:
            found.append(entry)
    return found
