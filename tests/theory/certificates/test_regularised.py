"""The regularised optimum against a reference table and a numeric minimum."""

import json
import math
from pathlib import Path

import pytest
from scipy.optimize import minimize_scalar

from nclab.errors import DataError
from nclab.theory.certificates.regularised import regularised_optimum
from nclab.theory.layer_peeled import g

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "certificates.json").read_text())


@pytest.mark.parametrize("row", GOLDEN["regularised"]["rows"])
def test_reference_table(row: dict[str, float]) -> None:
    optimum = regularised_optimum(10, row["weight_decay"])
    assert optimum.product == pytest.approx(row["product"], abs=1e-6)
    assert optimum.optimal_loss == pytest.approx(row["optimal_loss"], abs=1e-6, rel=1e-6)


@pytest.mark.parametrize("num_classes", [2, 3, 10, 100])
@pytest.mark.parametrize("weight_decay", [1e-4, 1e-2, 0.09])
def test_numeric_minimum(num_classes: int, weight_decay: float) -> None:
    tilt = weight_decay * math.sqrt(num_classes)
    numeric = minimize_scalar(
        lambda a: g(a, num_classes) + tilt * a, bounds=(0, 50), options={"xatol": 1e-9}
    )
    optimum = regularised_optimum(num_classes, weight_decay)
    assert optimum.product == pytest.approx(numeric.x, abs=1e-5)
    assert optimum.objective == pytest.approx(numeric.fun, rel=1e-10)
    penalty = num_classes * optimum.beta**2 + optimum.alpha**2
    assert optimum.objective == pytest.approx(optimum.optimal_loss + weight_decay / 2 * penalty)


@pytest.mark.parametrize("factor", [1.0, 1.5, 100.0])
def test_collapse_to_zero_from_the_critical_weight_decay(factor: float) -> None:
    optimum = regularised_optimum(10, factor / math.sqrt(10))
    assert (optimum.product, optimum.alpha, optimum.beta) == (0.0, 0.0, 0.0)
    assert optimum.objective == pytest.approx(math.log(10))


@pytest.mark.parametrize(
    ("num_classes", "weight_decay"), [(1, 0.1), (10, 0.0), (10, -1.0), (10, math.nan)]
)
def test_bad_inputs_raise(num_classes: int, weight_decay: float) -> None:
    with pytest.raises(DataError, match=r"^Expected[^\n]*got[^\n]*$"):
        regularised_optimum(num_classes, weight_decay)
