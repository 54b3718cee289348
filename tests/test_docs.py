"""Docstrings follow their grammar, public functions have examples, generated pages are fresh."""

import ast
import inspect
import re
import runpy
from pathlib import Path

import pytest

import nclab
from nclab.claims.evidence import best_evidence
from nclab.claims.registry import claims as all_claims
from nclab.claims.registry import experiments
from tests.claims.paper_attacks import VERDICTS
from tests.forked import Program

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
EXTRAS = "lightning|transformers|accelerate|torchmetrics|tensorboard|ray"
"""Packages that an example may import although a machine may not have them."""
FEWER = {
    "language_model_byte_pairs": (20,),
    "language_model_characters": (1,),
    "long_tail": ("--epochs", 1),
}
"""Arguments that shorten the training of examples."""


def functions(file: Path) -> list[ast.FunctionDef]:
    """Return the top-level functions of a file."""
    return [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)]


def test_every_module_opens_with_a_sentence() -> None:
    for file in SOURCES:
        assert ast.get_docstring(ast.parse(file.read_text())), file


@pytest.mark.parametrize("room", ["metrics", "statistics"])
def test_every_public_function_of_a_room_has_a_doctest(room: str) -> None:
    module = __import__(f"nclab.{room}", fromlist=["__all__"])
    for name in module.__all__:
        assert ">>>" in (getattr(module, name).__doc__ or ""), name


def test_every_public_name_has_a_doctest_or_an_example() -> None:
    shown = "\n".join(file.read_text() for file in EXAMPLES)
    for name in nclab.__all__:
        if name.endswith(("Error", "Warning")) or inspect.ismodule(getattr(nclab, name)):
            continue  # errors appear in the doctest of their base class, packages in their own
        doc = getattr(nclab, name).__doc__ or ""
        assert ">>>" in doc or re.search(rf"\b{name}\b", shown), name


def test_sources_name_known_papers() -> None:
    known = runpy.run_path(str(ROOT / "docs" / "build_formulas.py"))["sources"]()
    found = 0
    for file in SOURCES:
        for match in re.finditer(r"^\s*Source: (\w+), (\S.*)$", file.read_text(), re.MULTILINE):
            found += 1
            assert match[1] in known, f"{file}: {match[0]}"
            assert re.match(
                r"(Eq\.|Thm|Lemma|Cor|Prop|Def\.|Fig\.|Sec\.|Remark|Example|Conj\.)", match[2]
            )
    assert found > 30


def test_formulas_page_is_fresh() -> None:
    builder = runpy.run_path(str(ROOT / "docs" / "build_formulas.py"))
    expected = builder["page"]()
    assert (ROOT / "docs" / "formulas.md").read_text() == expected, "run `make docs`"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda file: file.stem)
def test_examples_run(example: Path, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if example.stem.endswith("_ray"):
        request.getfixturevalue("ray_cluster")  # otherwise it starts its own cluster
    done = Program(example, *FEWER.get(example.stem, ()), folder=tmp_path).wait()
    missing = re.search(rf"No module named '({EXTRAS})\b", done.stderr)
    if missing:
        pytest.skip(f"needs the optional package {missing[1]}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_links_in_the_docs_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_command_is_how_to_install(page: str) -> None:
    first = re.search(r"^```sh.*?\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    assert first is not None
    assert first[1].startswith("pip install ")


def test_the_readme_counts_the_claims() -> None:
    text = " ".join((ROOT / "README.md").read_text().split())
    corrected = sum(verdict == "holds with a correction" for verdict, _ in VERDICTS.values())
    statements = [claim for claim in all_claims() if not claim.ours]
    whole = [claim for claim in statements if claim.paper in ("pan2023", "ji2022")]
    some = [claim for claim in statements if claim not in whole]
    words = {4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}
    others = words[len({claim.paper for claim in some})]
    assert all(claim.location.endswith("Sec. Abstract") for claim in some)
    assert f"a verdict on {len(statements)} statements" in text
    assert f"the {len(whole)} numbered statements and empirical sentences of these two" in text
    assert f"{len(some)} sentences of the abstracts of {others} others" in text
    assert f"{corrected} hold only with a correction" in text
    assert f"{len(all_claims()) - len(statements)} findings of ours" in text


def test_results_replace_what_is_between_the_marks() -> None:
    builder = runpy.run_path(str(ROOT / "docs" / "build_experiments.py"))
    page = f"# Title\n\n{builder['BEGIN_MARK']}\nold\n{builder['END_MARK']}\n\nafter\n"
    new = builder["inserted"](page, f"{builder['BEGIN_MARK']}\nnew\n{builder['END_MARK']}")
    assert new == f"# Title\n\n{builder['BEGIN_MARK']}\nnew\n{builder['END_MARK']}\n\nafter\n"


@pytest.mark.parametrize("name", [name for name in experiments() if best_evidence(name)])
def test_the_page_of_an_experiment_is_what_its_evidence_says(name: str) -> None:
    builder = runpy.run_path(str(ROOT / "docs" / "build_experiments.py"))
    page = (ROOT / "docs" / "experiments" / f"{name}.md").read_text()
    assert f"nclab reproduce {name}" in page
    numbers = best_evidence(name)
    assert builder["inserted"](page, builder["results"](name, numbers)) == page
    for picture in builder["pictures_of"](name, numbers):
        assert (ROOT / "docs" / "experiments" / "images" / f"{picture.name}.png").exists()


def test_every_figure_of_both_papers_has_its_experiment() -> None:
    text = (ROOT / "docs" / "reproducing.md").read_text()
    rows = re.findall(
        r"^\| (\w+, (?:Fig\.|Table) [\d.]+) \| `(\w+)` \| (?:`(\w+)`)? ?\|", text, re.M
    )
    theses = {f"pan2023, Fig. {number}" for number in ("1.1", "1.2", "2.1", "3.1", "3.2", "3.3")}
    papers_ = {"ji2022, Fig. 1", "ji2022, Fig. 2", "ji2022, Fig. 3", "ji2022, Table 1"}
    assert {figure for figure, _, _ in rows} == theses | papers_
    for _, name, picture in rows:
        drawn = {one.name for one in experiments()[name].pictures(best_evidence(name) or {})}
        assert not picture or picture in drawn


def test_the_history_of_judgements_ends_with_the_verdicts_of_the_ledger() -> None:
    text = (ROOT / "docs" / "design" / "judgements.md").read_text()
    table = text.partition("<!-- before and after -->")[2].partition("<!-- end of before")[0]
    rows = re.findall(
        r"^\| (\w+/\S+) \| .+? \| ([a-z ]+?)(?: \(.+?\))? \| .+ \|$", table, re.MULTILINE
    )
    claims = [claim for claim in all_claims() if claim.empirical]
    verdicts = {
        claim.id: claim.check(numbers=best_evidence(claim.needs)).verdict.value for claim in claims
    }
    assert dict(rows) == verdicts
