"""The limit of no weight decay on imbalanced classes, and how slowly it is approached."""

from collections.abc import Sequence

import torch
from torch import Tensor

from nclab.theory.targets.program import expanded
from nclab.theory.targets.setting import Setting
from nclab.theory.targets.solved import CLOSED, Solved, shared_out


def limit_grams(counts: Tensor, *, biased: bool = False) -> tuple[Tensor, Tensor]:
    r"""Grams of classifier and means, up to scale, as the weight decay goes to 0.

    $$WW^\top \propto (PDP)^{1/2},\qquad \bar H^\top\bar H \propto (PDP)^{-1/2}$$

    With D the counts, P the centring; the logits become proportional to P. Derived in
    docs/targets.md for all counts; cf. Thrampoulidis et al. 2022 (SELI). A free bias takes what all
    samples share: $WW^\top \propto (D - nn^\top/\textstyle\sum n)^{1/2}$ with n the counts.

    >>> W, H = limit_grams(torch.tensor([10.0, 10.0, 1.0, 1.0]))
    >>> round(float((W[0, 0] / W[2, 2]).sqrt()), 8)
    1.41253214
    """
    D = torch.as_tensor(counts, dtype=torch.float64)
    left, right, _ = shared_out(_logits(D, biased)[0], D)
    return left, right


def _logits(metric: Tensor, biased: bool) -> tuple[Tensor, Tensor]:
    """P, without what a free bias has of it, and that bias."""
    P = torch.eye(len(metric), dtype=torch.float64) - 1 / len(metric)
    bias = P @ metric / metric.sum() if biased else torch.zeros_like(metric)
    return P - bias[:, None], bias


def solve_limit(setting: Setting) -> Solved:
    """The limit as an optimum whose norms are infinite: logits and Grams of size 1."""
    logits, bias = _logits(setting.metric, setting.bias == 0)
    left, right, values = shared_out(logits, setting.metric)
    return Solved(
        logits=logits,
        bias=bias,
        loss=0.0,
        penalty=0.0,
        left=left,
        right=right,
        lower=0.0,
        proof=CLOSED,
        geometry="simplex ETF" if setting.balanced else "simplex-encoded labels (SELI)",
        source="docs/targets.md, no weight decay; cf. Thrampoulidis et al. 2022",
        norm=float(values.sum()),
        weight=0.0,
        notes=(
            "a limit: norms grow without bound, only directions and ratios mean something",
            "it is approached like 1 / log(1 / weight decay): compare networks with their own",
        ),
    )


def approach(counts: Sequence[float] | Tensor, weights: Sequence[float]) -> list[float]:
    """Distance of the classifier's normalised Gram to its limit at each t: it falls like 1/log.

    >>> [round(one, 3) for one in approach([10, 10, 1, 1], [1e-2, 1e-4, 1e-6])]
    [0.163, 0.077, 0.051]
    """
    from nclab.theory.targets.grouped import program_of
    from nclab.theory.targets.solve import solve

    many = torch.as_tensor(counts, dtype=torch.float64)
    limit, _ = limit_grams(many)
    distances = []
    for weight in weights:
        program, place = program_of(many, weight)
        logits = expanded(solve(program).point, place)
        gram, _, _ = shared_out(logits, many)
        distances.append(float((gram / gram.norm() - limit / limit.norm()).norm()))
    return distances
