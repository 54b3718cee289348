"""The site builds strictly, downloads nothing, typesets every formula and has every public name."""

import doctest
import importlib
import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from nclab import __version__
from tests.report.browser import Watched, chromium
from tests.report.test_access_in_browser import AXE, BOTH, serious

ROOT = Path(__file__).parent.parent
public_names = runpy.run_path(str(ROOT / "docs" / "build_site.py"))["public_names"]
FETCHED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\b(?:src|srcset)=["']?(?:https?:)?//"""
    r"""|<link\b(?![^>]*rel=["']?(?:canonical|next|prev))[^>]*\bhref=["']?(?:https?:)?//"""
)
"""References that a browser loads by itself. Links that a reader may follow do not count."""
BUILD = """
import sys
sys.modules["ruff"] = None  # otherwise it starts for every signature to break lines
from mkdocs.__main__ import cli
cli()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; any broken link, unknown name or formula fails here."""
    pytest.importorskip("mkdocstrings", reason="the extra `docs` is not installed")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-c", BUILD, "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def pages(site: Path) -> dict[str, str]:
    """Return every page of the site."""
    return {
        file.relative_to(site).as_posix(): file.read_text() for file in sorted(site.rglob("*.html"))
    }


def test_nothing_is_fetched(site: Path) -> None:
    found = pages(site)
    assert len(found) > 60
    for name, text in found.items():
        assert not FETCHED.search(text), name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"""(?:url\(|@import)\s*["']?(?:https?:)?//""", sheet.read_text()), (
            sheet
        )
    assert FETCHED.search('<script src="https://example.org/a.js">')  # the pattern finds a script
    assert FETCHED.search('<link rel="stylesheet" href="//example.org/a.css">')


def test_formulas_are_typeset(site: Path) -> None:
    found = pages(site)
    assert found["formulas.html"].count("<math") > 100
    assert found["reference/nclab.metrics.html"].count("<math") > 40
    for name, text in found.items():
        assert "arithmatex" not in text, name
        prose = re.sub(r"<(pre|code|script|style)\b.*?</\1>", "", text, flags=re.DOTALL)
        assert "$$" not in prose, name
        assert "\\frac" not in prose, name
        words = re.sub(r"<math\b.*?</math>|<[^>]*>", "", prose, flags=re.DOTALL)
        assert not re.search(r"\w[_^]\{", words), name


def test_indices_in_sentences_are_set_low_and_high() -> None:
    indices = runpy.run_path(str(ROOT / "docs" / "build_site.py"))["_indices"]
    assert indices("<p>‖M D^{1/2}‖_* of h̄_{c,i}</p>") == (
        "<p>‖M D<sup>1/2</sup>‖<sub>*</sub> of h̄<sub>c,i</sub></p>"
    )
    assert indices("λ_W, ‖W‖_F²") == "λ<sub>W</sub>, ‖W‖<sub>F</sub>²"
    for same in (
        "<p>min_intra and <code>h_c</code></p>",
        '<img alt="x_1" src="a_b.png" />',
        "<pre><code>x_{1}</code> y_2</pre>",
    ):
        assert indices(same) == same


@pytest.mark.skipif(not AXE.is_file(), reason="tools/pages has not brought axe")
def test_axe_finds_nothing_serious(site: Path) -> None:
    kinds = ("index", "targets", "reference/nclab.engine", "tutorials/training")
    found = []
    with chromium() as browser:
        for scheme in BOTH:  # the theme requests it when a page opens
            watched = Watched(browser, color_scheme=scheme)
            for name in kinds:
                found += serious(watched, (site / f"{name}.html").as_uri(), (scheme,))
            watched.context.close()
    assert found == []


def test_every_exported_name_is_documented(site: Path) -> None:
    """The reference documents every name in an `__all__`, and the name has a docstring."""
    for package, names in public_names().items():
        page = (site / "reference" / f"{package}.html").read_text()
        module = importlib.import_module(package)
        for name in names:
            assert getattr(module, name) is not None, f"{package}.{name}"
            if f"{package}.{name}" not in public_names():
                assert f'id="{package}.{name}"' in page, f"{package}.{name} has no docstring"


def test_pages_are_found_by_search(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    places = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"certificates.html", "tutorials/theory.html", "reference/nclab.metrics.html"} <= places
    assert (site / "search" / "search_index.js").read_text().startswith("var __index = ")


def test_pages_of_the_repository_are_all_there(site: Path) -> None:
    sources = {
        file.relative_to(ROOT / "docs").with_suffix(".html").as_posix()
        for kind in ("*.md", "*.ipynb")
        for file in (ROOT / "docs").rglob(kind)
    }
    made = {"gallery.html", "examples.html", "contributing.html", "changelog.html"}
    assert sources | made | {"reference/command_line.html"} <= set(pages(site))


def test_pictures_of_the_gallery_stand_beside_their_code(site: Path) -> None:
    text = pages(site)["gallery.html"]
    images = re.findall(r'<img [^>]*src="([^"]+)"', text)
    assert len(images) > 25
    assert all((site / image).is_file() for image in images)
    assert all(f'src="experiments/images/{file.name}"' in text for file in experiments())
    assert "nclab reproduce pan2023_fig31" in text
    assert "counts=[100]" in re.sub(
        r"<[^>]+>", "", text
    )  # `target.plot()` and the definition of `target`


def experiments() -> list[Path]:
    """Return the pictures on the pages of experiments."""
    return sorted((ROOT / "docs" / "experiments" / "images").glob("*.png"))


def test_the_examples_of_the_docstring_reader() -> None:
    pytest.importorskip("mkdocstrings", reason="the extra `docs` is not installed")
    found = importlib.util.spec_from_file_location("docstrings", ROOT / "docs" / "docstrings.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_citation_names_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {__version__}\n" in text
    for key in ("cff-version", "message", "title", "authors", "license"):
        assert re.search(rf"^{key}:", text, re.MULTILINE), key
