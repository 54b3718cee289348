"""Measures of the thesis's three conjectures on trained networks: the smallest e for which each
holds."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

from nclab.errors import DataError
from nclab.metrics.nc4_nearest_center import effective_depth

Value = TypeVar("Value")


def smallest_decay_slack(weight_decays: Sequence[float], gaps: Sequence[float]) -> float:
    r"""Return the smallest e for which collapse improves with weight decay, for two networks or
    more.

    $$e = \max_{\lambda_1<\lambda_2}
    \frac{\mathrm{gap}(\lambda_1)-\mathrm{gap}(\lambda_2)}{\log(\lambda_2/\lambda_1)}\Big|_+,\quad
    \mathrm{gap} = \min_c \mathrm{intra}_c - \max_{c\ne c'} \mathrm{inter}_{c,c'}$$

    Source: pan2023, Conj. 3.1.1
    Range: [0, inf); 0 if the gap never falls.

    >>> smallest_decay_slack([1e-4, 1e-3, 1e-2], [0.5, 1.25, 1.0]) == 0.25 / math.log(10)
    True
    """
    _check_finite(gaps)
    line = _ordered(weight_decays, gaps)
    falls = [
        (before - after) / math.log(larger / smaller)
        for place, (smaller, before) in enumerate(line)
        for larger, after in line[place + 1 :]
    ]
    return max(0.0, *falls)


def smallest_layer_slack(gaps: Sequence[float]) -> float:
    r"""Return the smallest e for which collapse sharpens from each layer to the next.

    $$e = \max_l \bigl(\mathrm{gap}^{(l)} - \mathrm{gap}^{(l+1)}\bigr)\big|_+$$

    Source: pan2023, Conj. 3.2.1
    Range: [0, inf); 0 if the gap never falls.

    >>> smallest_layer_slack([0.25, 0.75, 0.5, 1.0])
    0.25
    """
    if len(gaps) < 2:
        raise DataError(f"Expected at least two layers, got {len(gaps)}.")
    _check_finite(gaps)
    return max(0.0, *(before - after for before, after in pairwise(gaps)))


def smallest_depth_error(
    weight_decays: Sequence[float], ncc_accuracies: Sequence[Sequence[float]]
) -> float:
    r"""Return the smallest e for which the e-effective depth does not grow with weight decay.

    $$\min\{e \ge e_0 : d^e(\lambda_1) \ge d^e(\lambda_2) \text{ for all } \lambda_1<\lambda_2\}$$

    e_0 is the smallest error that every network reaches in some layer. Below e_0 a depth is that
    of the full network by convention, so equal depths have no meaning. Depths change only at the
    errors of layers, so only these are tried. At the largest of them every depth is 1: the set is
    never empty, and only a small e is informative.

    Source: pan2023, Conj. 3.2.2
    Range: [0, 1].

    >>> smallest_depth_error([1e-4, 1e-3], [[0.75, 1.0, 1.0], [0.5, 0.75, 1.0]])
    0.5
    """
    for own in ncc_accuracies:
        _check_finite(own)
    line = _ordered(weight_decays, ncc_accuracies)
    errors = [[max(1 - float(value), 0.0) for value in layers] for _, layers in line]
    reached = max(min(own) for own in errors)
    candidates = {error for own in errors for error in own if reached <= error < 1}
    for error in sorted(candidates):
        depths = [effective_depth(layers, epsilon=error) for _, layers in line]
        if all(before >= after for before, after in pairwise(depths)):
            return error
    return 1.0  # some layer gets every sample wrong


def _check_finite(values: Sequence[float]) -> None:
    """Raise if a value is not finite."""
    if not all(map(math.isfinite, values)):
        raise DataError(f"Expected finite numbers, got {list(values)}. Leave such networks out.")


def _ordered(weight_decays: Sequence[float], values: Sequence[Value]) -> list[tuple[float, Value]]:
    """Return weight decays with their values, in increasing order, or raise."""
    if len(weight_decays) < 2 or len(set(weight_decays)) < len(weight_decays):
        raise DataError(
            f"Expected at least two networks of different weight decay, got {list(weight_decays)}."
        )
    if not all(decay > 0 for decay in weight_decays):
        raise DataError(f"Expected weight decays above 0, got {list(weight_decays)}.")
    pairs = zip(weight_decays, values, strict=True)
    return sorted(((float(decay), value) for decay, value in pairs), key=lambda pair: pair[0])
