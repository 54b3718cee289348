"""The golden numbers of the layer-peeled model."""

import json
from pathlib import Path
from typing import Any

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "golden" / "ulpm.json").read_text()
)


def assert_row(sample: Any, values: list[float], *, relative: float) -> None:
    """Assert that a sample agrees with a row of the table, within its tolerance and digits."""
    for name, value in zip(GOLDEN["columns"], values, strict=True):
        measured = getattr(sample, name)
        rounded = float(f"{measured:.{significant(value)}g}")
        close = abs(measured - value) <= relative * abs(value)
        assert close or rounded == value, f"{name}: {measured} against {value}"


def significant(value: float) -> int:
    """Return the number of digits of a number of the table, at least 2."""
    return max(2, len(f"{abs(value):.12g}".lstrip("0.").replace(".", "").split("e")[0]))
