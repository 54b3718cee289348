"""From single comparisons, such as one step of weight decay in one seed, to a verdict."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from nclab.papers.verdict import Finding, Verdict
from nclab.text import number

MOST = 2 / 3
"""Share of the comparisons that makes a claim partly reproduced: two of three seeds. Where there
is no effect about half of them hold by chance, so a mere majority would say nothing."""


class Comparison(NamedTuple):
    """One inequality that the claim predicts."""

    what: str
    """Where: seed, weight decay, layer."""
    margin: float
    """By how much it holds; negative where it does not."""


class Line(NamedTuple):
    """Values along weight decay, depth or layers that the claim says rise."""

    what: str
    places: Sequence[float]
    values: Sequence[float]
    sign: int = 1
    """-1 where the claim says that they fall."""


def weigh(
    comparisons: Iterable[Comparison], *, tolerance: float = 0.0, enough: float = 1.0
) -> Finding:
    """Reproduced if all comparisons hold, partly if most do; open if there are none.

    Args:
        tolerance: a margin above minus this still holds.
        enough: share of the comparisons that a claim with stated exceptions needs.

    >>> steps = [Comparison("seed 0", 0.2), Comparison("seed 1", 0.1), Comparison("seed 2", -0.3)]
    >>> finding = weigh(steps)
    >>> finding.verdict.value, finding.evidence
    ('partly reproduced', '2 of 3 comparisons hold; the worst by -0.3 (seed 2)')
    >>> weigh(steps, tolerance=0.5).verdict.value
    'reproduced'
    """
    known = list(comparisons)
    if not known:
        return Finding(Verdict.OPEN, "no two converged runs to compare", {"comparisons": 0})
    holding = sum(one.margin >= -tolerance for one in known)
    worst = min(known, key=lambda one: one.margin)
    evidence = (
        f"{holding} of {len(known)} comparisons hold; "
        f"the worst by {number(worst.margin)} ({worst.what})"
    )
    numbers = {
        "comparisons": len(known),
        "holding": holding,
        "tolerance": tolerance,
        "worst_margin": worst.margin,
        "worst_at": worst.what,
        "failing": [one.what for one in known if one.margin < -tolerance],
    }
    return Finding(share_verdict(holding, len(known), enough=enough), evidence, numbers)


def share_verdict(holding: int, total: int, *, enough: float = 1.0) -> Verdict:
    """Reproduced from the share `enough` on, partly from `MOST` on.

    >>> share_verdict(3, 3).value, share_verdict(2, 3).value, share_verdict(1, 3).value
    ('reproduced', 'partly reproduced', 'not reproduced')
    """
    if total == 0:
        return Verdict.OPEN
    if holding >= enough * total - 1e-9:
        return Verdict.REPRODUCED
    return Verdict.PARTLY if holding >= MOST * total - 1e-9 else Verdict.NOT_REPRODUCED


def rises(
    what: str, places: Sequence[float], values: Sequence[float], *, sign: int = 1
) -> list[Comparison]:
    """The steps of a sequence that should rise, or fall with sign -1.

    >>> rises("seed 0: weight decay", [1e-4, 1e-3], [0.5, 0.75])
    [Comparison(what='seed 0: weight decay 0.0001 to 0.001', margin=0.25)]
    >>> rises("seed 0: layer", [1, 2], [0.5, 0.5], sign=-1)[0].margin
    0.0
    """
    return [
        Comparison(f"{what} {places[i]:g} to {places[i + 1]:g}", sign * (after - before) + 0.0)
        for i, (before, after) in enumerate(pairwise(values))  # + 0.0: there is no worst by -0
    ]


def weigh_lines(
    lines: Iterable[Line], *, visible: float, back: float | None = None, enough: float = 1.0
) -> Finding:
    """Weigh the steps of lines, and whether each line rises visibly from its first to its last.

    Without the second demand a flat line would pass as rising. The verdict is the weaker of the
    two.

    Args:
        visible: the least rise from first to last.
        back: a step may go back by this much; by `visible` unless given.

    >>> flat = Line("seed 0: weight decay", [1e-4, 1e-3], [0.5, 0.5])
    >>> weigh_lines([flat], visible=0.01).verdict.value
    'not reproduced'
    """
    known = [line for line in lines if len(line.values) > 1]
    steps = weigh(
        (step for line in known for step in rises(*line[:3], sign=line.sign)),
        tolerance=visible if back is None else back,
        enough=enough,
    )
    if not known:
        return steps
    whole = weigh(
        Comparison(
            f"{line.what} {line.places[0]:g} to {line.places[-1]:g}",
            line.sign * (line.values[-1] - line.values[0]) - visible,
        )
        for line in known
    )
    order = (Verdict.NOT_REPRODUCED, Verdict.PARTLY, Verdict.REPRODUCED)
    return Finding(
        min(steps.verdict, whole.verdict, key=order.index),
        f"steps: {steps.evidence}; first to last: {whole.evidence}",
        {**steps.numbers, "first_to_last": whole.numbers},
    )
