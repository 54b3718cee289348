"""Forms of logits, factors and offsets, found by numbers: what there is, and nothing else."""

import numpy as np
import pytest
import torch
from torch import Tensor

from nclab.features.linear_fit import fit, fit_combination, fit_with_offset

DIM, CLASSES, ROWS = 12, 5, 40
GENERATOR = torch.Generator().manual_seed(0)
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


H, W, B = drawn(ROWS, DIM), drawn(CLASSES, DIM), drawn(CLASSES)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1.0, 0.25, 30.0, 1 / 0.07, -2.0, 0.123456789])
def test_a_factor_is_found_in_any_precision(scale: float, dtype: torch.dtype) -> None:
    h, w, b = (part.to(dtype) for part in (H, W, B))
    eps = torch.finfo(dtype).eps
    near = 64 * eps if eps < 1e-5 else eps
    for logits, bias, both in (
        (scale * (h @ w.T), None, False),
        (scale * (h @ w.T) + b, b, False),
        (scale * (h @ w.T + b), b, scale != 1.0),
    ):
        found = fit(h, logits, w, bias)
        assert found is not None
        assert found.scale == pytest.approx(scale, rel=near)
        assert (found.unit_rows, found.unit_weight, found.scaled_bias) == (False, False, both)
        assert found.with_bias == (bias is not None)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_no_linear_map_is_not_taken_for_one(dtype: torch.dtype) -> None:
    h, w = H.to(dtype), W.to(dtype)
    z = h @ w.T
    others = {
        "square": z.square(),
        "bounded": 3 * (z / 3).tanh(),
        "probabilities": z.softmax(-1),
        "log of them": z.log_softmax(-1),
        "another matrix": h @ (w + 0.3).T,
        "noise": torch.randn(z.shape, generator=GENERATOR).to(dtype),
    }
    for name, logits in others.items():
        assert fit_combination([z], logits) is None, name
        assert fit_with_offset(h, logits, w) is None, name
        if torch.finfo(dtype).eps < 1e-5:  # the plain product has the bound of its sums alone
            assert fit(h, logits, w, None) is None, name


def test_an_offset_nobody_has_written_down() -> None:
    found = fit_with_offset(H, 3 * H @ W.T + B, W)
    assert found is not None
    assert found[0].scale == 3.0
    assert torch.allclose(found[1], B, rtol=1e-12)


def test_factors_are_those_of_least_squares() -> None:
    """Against numpy, with a column for every factor and for every class."""
    parts = [drawn(ROWS, CLASSES) for _ in range(3)]
    output = 0.31415926 * parts[0] - 2 * parts[1] + parts[2] + B
    columns = [part.flatten().numpy() for part in parts]
    columns += [np.tile(np.eye(CLASSES)[own], ROWS) for own in range(CLASSES)]
    solved, *_ = np.linalg.lstsq(np.stack(columns, 1), output.flatten().numpy(), rcond=None)
    found = fit_combination(parts, output)
    assert found is not None
    assert found.offset is not None
    assert found.factors == pytest.approx(solved[:3], rel=1e-10)
    assert found.offset.tolist() == pytest.approx(solved[3:], rel=1e-10)


def test_too_few_rows_and_what_does_not_vary_tell_nothing() -> None:
    z = drawn(2, CLASSES)
    assert fit_combination([z], 2 * z) is None
    assert fit_with_offset(H[:2], H[:2] @ W.T + B, W) is None
    assert fit_combination([drawn(9, CLASSES)], torch.zeros(9, CLASSES)) is None
    assert fit_combination([drawn(9, CLASSES)], torch.full((9, CLASSES), torch.nan)) is None
