"""No function takes more parameters than a caller can keep in mind, but with a reason."""

import ast
from collections.abc import Iterator
from fnmatch import fnmatch

from tests.test_imports import modules

MOST = 8
REASONS = {
    "nclab.cli.*.command": "its parameters are its options, with help each",
    "nclab.measurement.arrays.measure_features": "the public door: each option stands alone",
    "nclab.measurement.shards.measure_shards": "the public door: each option stands alone",
    "nclab.monitor.monitor.__init__": "the public door: each option stands alone",
    "nclab.measurement.model.measure": "the public door: each option stands alone",
    "nclab.theory.targets.dispatch.target": "the public door: each option stands alone",
}


def long_lists() -> Iterator[str]:
    """The functions with more parameters than `MOST`, `self` not counted."""
    for module, file in modules().items():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = ast.walk(node.args)
                names = {one.arg for one in inside if isinstance(one, ast.arg)} - {"self", "cls"}
                if len(names) > MOST:
                    yield f"{module}.{node.name}"


def test_long_lists_of_parameters_have_reasons() -> None:
    found = list(long_lists())
    for name in found:
        assert any(fnmatch(name, pattern) for pattern in REASONS), f"{name}: over {MOST} parameters"
    for pattern in REASONS:
        assert any(fnmatch(name, pattern) for name in found), f"{pattern} needs no reason any more"
