"""The tutorials run in a real Jupyter kernel, and every output appears once and is not empty."""

import ast
import base64
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nclab

pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")
BUILDER = Path(__file__).parent.parent / "docs" / "build_notebooks.py"
NOTEBOOKS = sorted((BUILDER.parent / "tutorials").glob("*.ipynb"))
PICTURE = r"\.plot\([^)]*\)$"
TABLE = r"^(report|certificate|target)$|\.certificate\(\)$|\.to_frame\(\)"


@pytest.fixture(scope="module", params=NOTEBOOKS, ids=lambda file: file.stem)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """Return a stored tutorial and the same tutorial run by a new kernel."""
    import nbformat

    done = runpy.run_path(str(BUILDER))["executed"](request.param)
    return nbformat.read(request.param, as_version=4), done


def code(notebook: Any) -> Iterator[Any]:
    """Return the code cells of a notebook."""
    return (cell for cell in notebook.cells if cell.cell_type == "code")


def shape(cell: Any) -> list[tuple[str, ...]]:
    """Return the types of a cell's outputs without numbers; how a stream is cut is random."""
    kinds = [(one.output_type, *sorted(one.get("data", {}))) for one in cell.outputs]
    return list(dict.fromkeys(kinds))


def expected(source: str) -> list[tuple[str, ...]]:
    """Return the types of output that a cell with this source must have."""
    *_, last = ast.parse(source).body
    line = ast.unparse(last)
    if re.search(r"\bprint\(", source):
        return [("stream",)]
    if not isinstance(last, ast.Expr):
        return []
    rich = "image/png" if re.search(PICTURE, line) else "text/html"
    if re.search(PICTURE, line) or re.search(TABLE, line):
        return [("execute_result", rich, "text/plain")]
    return [] if "backward" in line else [("execute_result", "text/plain")]


def test_every_output_appears_once(pair: tuple[Any, Any]) -> None:
    _, done = pair
    seen: set[str] = set()
    for cell in code(done):
        assert shape(cell) == expected(cell.source), cell.source
        results = [one for one in cell.outputs if one.output_type == "execute_result"]
        assert len(results) <= 1
        for output in cell.outputs:
            assert output.get("name", "stdout") == "stdout", output.text
            shown = [output.text] if "text" in output else list(output.data.values())
            assert all(value.strip() for value in shown), cell.source
        for output in results:
            best = output.data.get("image/png") or output.data.get("text/html")
            assert best is None or best not in seen, cell.source
            seen.add(best or "")


def test_printed_tables_are_whole(pair: tuple[Any, Any]) -> None:
    """`print` and the text version of a table are equal, and appear once."""
    _, done = pair
    printed = {cell.source: cell for cell in code(done) if cell.source.startswith("print(")}
    for source, cell in printed.items():
        name = source[len("print(") : -1]
        [shown] = [one for one in code(done) if one.source.splitlines()[-1] == name]
        text = "".join(output.text for output in cell.outputs)
        assert text.rstrip("\n") == shown.outputs[0].data["text/plain"]
        assert len(text.splitlines()) > 5


def test_pictures_are_pictures(pair: tuple[Any, Any]) -> None:
    for cell in code(pair[1]):
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                content = base64.b64decode(output.data["image/png"])
                size = output.metadata["image/png"]
                assert content.startswith(b"\x89PNG")
                assert int.from_bytes(content[16:20]) == 2 * size["width"]  # sharp
                assert len(content) > 10_000
                assert output.data["text/plain"].startswith("<Drawing: ")


def test_the_kept_outputs_are_those_of_this_version(pair: tuple[Any, Any]) -> None:
    kept, done = pair
    for old, new in zip(code(kept), code(done), strict=True):
        assert shape(old) == shape(new), "run `python docs/build_notebooks.py`"


def test_one_tutorial_for_each_kind_of_user() -> None:
    assert [file.stem for file in NOTEBOOKS] == ["theory", "trained_network", "training"]


def test_plain_ipython_shows_text() -> None:
    """A terminal shows the text once, and no file is written."""
    formatters = pytest.importorskip("IPython.core.formatters")
    collapse = nclab.measure_features([[1.0, 0.0], [-1.0, 0.5]], [0, 1])
    formatter = formatters.DisplayFormatter()
    for shown in (collapse, nclab.certify(4, 1.8, 1.8, 0.05), nclab.target(3, weight_decay=0.01)):
        data, _ = formatter.format(shown)
        assert data["text/plain"] == str(shown) == repr(shown)
        assert data["text/html"].count("<table>") == 1
    data, metadata = formatter.format(collapse.plot())
    assert data["text/plain"] == "<Drawing: 2 panels, 6.8 x 3.56 inches>"
    assert data["image/png"].startswith(b"\x89PNG")
    assert metadata["image/png"]["width"] == 680
