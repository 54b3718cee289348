"""The golden numbers of the layer-peeled model."""

import json
from pathlib import Path
from typing import Any

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "golden" / "ulpm.json").read_text()
)


def assert_row(sample: Any, values: list[float], *, relative: float) -> None:
    """A sample against a row of the table, within the tolerance and the digits it was kept to."""
    for name, value in zip(GOLDEN["columns"], values, strict=True):
        found = getattr(sample, name)
        kept = float(f"{found:.{significant(value)}g}")
        close = abs(found - value) <= relative * abs(value)
        assert close or kept == value, f"{name}: {found} against {value}"


def significant(value: float) -> int:
    """Digits a number of the table was kept to, at least 2."""
    return max(2, len(f"{abs(value):.12g}".lstrip("0.").replace(".", "").split("e")[0]))
