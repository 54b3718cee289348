"""Tests that the error for a missing package names the extra to install."""

import runpy
import sys

import pytest

import nclab
from nclab.errors import MissingExtra


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("lightning", "lightning.pytorch"),
        ("transformers", "transformers"),
        ("torchmetrics", "torchmetrics"),
    ],
)
def test_a_missing_package_is_named(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"needs {module}.*pip install nclab\[{module}\]"):
        runpy.run_path(f"{nclab.__path__[0]}/monitor/{module}.py")
