"""Functions with many parameters are listed here with a reason."""

import ast
from collections.abc import Iterator
from fnmatch import fnmatch

from tests.test_imports import modules

MOST = 8
REASONS = {
    "nclab.claims.claim.claim": "decorator whose parameters are the fields of a claim",
    "nclab.cli.*.command": "every parameter is an option with its help text",
    "nclab.measurement.arrays.measure_features": "public function with independent options",
    "nclab.measurement.shards.measure_shards": "public function with independent options",
    "nclab.monitor.monitor.__init__": "public class with independent options",
    "nclab.measurement.model.measure": "public function with independent options",
    "nclab.theory.targets.dispatch.target": "public function with independent options",
    "nclab.theory.targets.setting.check_setting": "checks the options of `target` one by one",
}


def functions_with_many_parameters() -> Iterator[str]:
    """Yield the functions with more than `MOST` parameters; `self` is not counted."""
    for module, file in modules().items():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = (part for part in ast.walk(node.args) if isinstance(part, ast.arg))
                if len({argument.arg for argument in arguments} - {"self", "cls"}) > MOST:
                    yield f"{module}.{node.name}"


def test_functions_with_many_parameters_have_reasons() -> None:
    functions = list(functions_with_many_parameters())
    for name in functions:
        assert any(fnmatch(name, pattern) for pattern in REASONS), f"{name}: over {MOST} parameters"
    for pattern in REASONS:
        assert any(fnmatch(name, pattern) for name in functions), f"{pattern}: remove the reason"
