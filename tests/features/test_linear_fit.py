"""Tests of the numerical fits of linear forms, factors and offsets."""

import numpy as np
import pytest
import torch
from torch import Tensor

from nclab.features.linear_fit import fit, fit_combination, fit_with_offset

DIM, CLASSES, ROWS = 12, 5, 40
GENERATOR = torch.Generator().manual_seed(0)
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


H, W, B = normal(ROWS, DIM), normal(CLASSES, DIM), normal(CLASSES)


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
        form = fit(h, logits, w, bias)
        assert form is not None
        assert form.scale == pytest.approx(scale, rel=near)
        assert (form.unit_rows, form.unit_weight, form.scaled_bias) == (False, False, both)
        assert form.with_bias == (bias is not None)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nonlinear_maps_do_not_fit(dtype: torch.dtype) -> None:
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
        if torch.finfo(dtype).eps < 1e-5:  # in half precision the plain product may fit
            assert fit(h, logits, w, None) is None, name


def test_an_offset_without_a_parameter_is_found() -> None:
    match = fit_with_offset(H, 3 * H @ W.T + B, W)
    assert match is not None
    assert match[0].scale == 3.0
    assert torch.allclose(match[1], B, rtol=1e-12)


def test_factors_are_those_of_least_squares() -> None:
    """Compare with numpy: one column for each factor and for each class."""
    parts = [normal(ROWS, CLASSES) for _ in range(3)]
    output = 0.31415926 * parts[0] - 2 * parts[1] + parts[2] + B
    columns = [part.flatten().numpy() for part in parts]
    columns += [np.tile(np.eye(CLASSES)[column], ROWS) for column in range(CLASSES)]
    solved, *_ = np.linalg.lstsq(np.stack(columns, 1), output.flatten().numpy(), rcond=None)
    combination = fit_combination(parts, output)
    assert combination is not None
    assert combination.offset is not None
    assert combination.factors == pytest.approx(solved[:3], rel=1e-10)
    assert combination.offset.tolist() == pytest.approx(solved[3:], rel=1e-10)


def test_too_few_or_constant_rows_do_not_fit() -> None:
    z = normal(2, CLASSES)
    assert fit_combination([z], 2 * z) is None
    assert fit_with_offset(H[:2], H[:2] @ W.T + B, W) is None
    assert fit_combination([normal(9, CLASSES)], torch.zeros(9, CLASSES)) is None
    assert fit_combination([normal(9, CLASSES)], torch.full((9, CLASSES), torch.nan)) is None
