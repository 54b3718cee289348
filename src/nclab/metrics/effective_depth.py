"""How early in a network its classes are already separated by nearest class centres."""

from collections.abc import Sequence

from nclab.errors import DataError


def effective_depth(ncc_accuracies: Sequence[float], *, epsilon: float = 0.01) -> int:
    r"""The first layer, counted from 1, whose nearest-class-centre error is at most epsilon.

    $$\min\{i : 1 - \mathrm{nc4\_ncc\_accuracy}_i \le \varepsilon\},
      \text{ or the number of layers if there is none}$$

    Source: pan2023, Def. 3.2.2
    Range: 1 to the number of layers.

    >>> effective_depth([0.4, 0.9, 0.995, 1.0], epsilon=0.01)
    3
    """
    if not ncc_accuracies:
        raise DataError("Expected the accuracy of at least one layer, got none.")
    if not 0 <= epsilon < 1:
        raise DataError(f"Expected epsilon in [0, 1), got {epsilon}.")
    for depth, ncc_accuracy in enumerate(ncc_accuracies, start=1):
        if 1 - ncc_accuracy <= epsilon + 1e-12:  # 1 - 0.99 is not 0.01 in floating point
            return depth
    return len(ncc_accuracies)
