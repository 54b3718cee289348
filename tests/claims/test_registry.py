"""A paper is a folder or an installed package; nothing else lists it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nclab
import nclab_papers
from nclab.claims import registry
from nclab.records.results import parse_json, write_json
from nclab.report.pages import typeset
from nclab.text import plain_math
from tests.claims import tiny
from tests.cli.runner import call


@pytest.fixture
def fresh_registry() -> Iterator[None]:
    registry.forget()
    yield
    registry.forget()
    for name in [name for name in sys.modules if tiny.KEY in name or "tiny_paper" in name]:
        del sys.modules[name]


@pytest.mark.usefixtures("fresh_registry")
def test_a_folder_is_a_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.write_folder(tmp_path / "more")
    monkeypatch.setattr(nclab_papers, "__path__", [*nclab_papers.__path__, str(tmp_path / "more")])
    done = call("claims", tiny.KEY, "--json", "--runs", tmp_path)
    assert [row["verdict"] for row in json.loads(done.out)] == ["contradicted"]
    done = call("reproduce", tiny.KEY, "--out", tmp_path / "runs")
    assert (done.code, done.err) == (0, "")
    assert "contradicted" in done.out
    shown_in_report(tmp_path / "runs")
    [row] = json.loads(call("claims", tiny.KEY, "--json", "--runs", tmp_path / "runs").out)
    assert (row["verdict"], row["links"]["erratum"]) == (
        "contradicted",
        "docs/errata.md#tiny2026-eq-1",
    )


def test_an_installed_package_is_a_paper(tmp_path: Path) -> None:
    wheel, site = tiny.write_wheel(tmp_path), tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", str(site), str(wheel)], check=True, capture_output=True)
    paths = [str(site), str(Path(nclab.__file__).parents[1])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    def run(*words: object) -> str:
        command = [sys.executable, "-m", "nclab", *map(str, words)]
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert "contradicted" in run("reproduce", tiny.KEY, "--out", tmp_path / "runs")
    shown_in_report(tmp_path / "runs")
    assert "contradicted" in run("claims", tiny.KEY, "--runs", tmp_path / "runs")


def shown_in_report(runs: Path) -> None:
    """Check that paper, experiment, figure and verdict are on the pages."""
    page = (runs / "report" / "papers" / f"{tiny.KEY}.html").read_text()
    for words in ("On Two and Two", "tiny2026_sum", "The sum", "contradicted", "the sum is 4"):
        assert words in page
    assert "stale" not in page
    assert "On Two and Two" in (runs / "report" / "index.html").read_text()


@pytest.mark.usefixtures("fresh_registry")
def test_two_papers_of_one_key_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        folder = tiny.write_folder(tmp_path / "more")
        folder.rename(tmp_path / "more" / f"{tiny.KEY}_{name}")
    monkeypatch.setattr(nclab_papers, "__path__", [*nclab_papers.__path__, str(tmp_path / "more")])
    with pytest.raises(nclab.NclabError, match="Expected one package with the paper"):
        registry.papers()


@pytest.mark.usefixtures("fresh_registry")
def test_verdicts_older_than_their_numbers_are_marked_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.write_folder(tmp_path / "more")
    monkeypatch.setattr(nclab_papers, "__path__", [*nclab_papers.__path__, str(tmp_path / "more")])
    runs = tmp_path / "runs"
    assert call("reproduce", "tiny2026_sum", "--out", runs).code == 0
    numbers = runs / "tiny2026_sum" / "numbers.json"
    write_json(numbers, {**parse_json(numbers), "sum": 5})
    assert call("report", runs).code == 0
    for page in ("claims.html", f"papers/{tiny.KEY}.html"):
        assert "stale" in (runs / "report" / page).read_text()
    assert call("reproduce", "tiny2026_sum", "--out", runs).code == 0
    page = (runs / "report" / "claims.html").read_text()
    assert "stale" not in page
    [row] = json.loads((runs / "claims.json").read_text())["claims"]
    assert row["verdict"] == "contradicted"
    assert row["here"]["relation"] == "differs"


def test_every_paper_of_ours_is_named_by_its_folder() -> None:
    for key, package in registry.packages().items():
        if package.__name__.startswith(f"{nclab_papers.__name__}."):
            assert package.__name__ == f"{nclab_papers.__name__}.{key}"
            for part in registry.papers()[key].parts:
                assert Path(str(package.__file__)).with_name(f"{part}.py").exists(), part


def test_every_formula_has_a_plain_and_a_typeset_form() -> None:
    texts = [claim.text for claim in registry.claims()]
    for erratum in registry.errata():
        texts += [erratum.printed, erratum.correct, erratum.why]
    for text in texts:
        for written in (plain_math(text), typeset(text)):
            assert not re.search(r"\$|\\", written), text
