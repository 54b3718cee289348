"""What a measurement says of the way to a network's own optimum: its numbers' names and words."""

from collections.abc import Sequence

MEANINGS = {
    "target_distance": "class means from those of their own optimum",
    "etf_distance": "class means from a simplex ETF",
    "target_distance_weights": "classifier from that of its own optimum",
    "etf_distance_weights": "classifier from a simplex ETF",
    "target_excess_loss": "loss above the best for these counts and norms, at most",
}
"""Beside the metrics, in rows, records and sinks; distances are of centred, normalised Grams."""
SAME = 1e-3
"""Distances that differ by less are the same."""


def progress(own: Sequence[float | None], etf: Sequence[float | None]) -> str:
    """How far a training has come, from its distances to its own optimum and to the ETF.

    >>> print(progress([0.5, 0.16], [0.6, 0.5]))
    68 % of the way to its own optimum (distance 0.5, now 0.16); the simplex ETF is not where this
    network is going (0.6, now 0.5).
    >>> progress([0.5, 0.25], [0.5, 0.25])
    '50 % of the way to its own optimum (distance 0.5, now 0.25), the simplex ETF.'
    >>> progress([0.5], [0.5])
    ''
    """
    known = [(a, b) for a, b in zip(own, etf, strict=False) if a is not None and b is not None]
    if len(known) < 2 or min(known[0]) <= 0:
        return ""
    (first, other_first), (last, other) = known[0], known[-1]
    here, there = 1 - last / first, 1 - other / other_first
    words = f"(distance {first:.2g}, now {last:.2g})"
    words = f"{here:.0%} of the way to its own optimum {words}".replace("%", " %")
    if here <= 0:
        words = f"No nearer to its own optimum than at first (distance {first:.2g}, now {last:.2g})"
    if max(abs(a - b) for a, b in known) < SAME:
        return f"{words}, the simplex ETF."
    seen = f"({other_first:.2g}, now {other:.2g})"
    if here > there and last < other:
        return f"{words}; the simplex ETF is not where this network is going {seen}."
    if there > here and other < last:
        return f"{words}; it is nearer to the simplex ETF {seen}."
    return f"{words}; of the simplex ETF {seen}."
