"""Names and words for the distance of a measurement to its target, the geometry it should reach."""

from collections.abc import Sequence

MEANINGS = {
    "target_distance": "distance of the class means to their target",
    "etf_distance": "distance of the class means to a simplex ETF",
    "target_distance_weights": "distance of the classifier to its target",
    "etf_distance_weights": "distance of the classifier to a simplex ETF",
    "target_excess_loss": "loss above that of the target, at most",
}
"""Meaning of each number that records and tables contain in addition to the metrics.
Distances compare centred and normalised Gram matrices."""
SAME = 1e-3
"""Differences of distances below this threshold are ignored."""


def progress(to_target: Sequence[float | None], to_etf: Sequence[float | None]) -> str:
    """Describe how far a training has come, from its distances to its target and to the ETF.

    >>> print(progress([0.5, 0.16], [0.6, 0.5]))
    68 % of the way to its target (distance 0.5 at first, 0.16 now); it approaches the target rather
    than the simplex ETF (distance 0.6 at first, 0.5 now).
    >>> print(progress([0.5, 0.25], [0.5, 0.25]))
    50 % of the way to its target (distance 0.5 at first, 0.25 now), which is the simplex ETF.
    >>> progress([0.5], [0.5])
    ''
    """
    pairs = zip(to_target, to_etf, strict=False)
    complete = [(target, etf) for target, etf in pairs if target is not None and etf is not None]
    if len(complete) < 2 or min(complete[0]) <= 0:
        return ""
    (first, first_etf), (last, last_etf) = complete[0], complete[-1]
    share, share_etf = 1 - last / first, 1 - last_etf / first_etf
    distance = f"(distance {first:.2g} at first, {last:.2g} now)"
    words = f"{share:.0%} of the way to its target".replace("%", " %")
    if share <= 0:
        words = "No nearer to its target than at first"
    words = f"{words} {distance}"
    if max(abs(target - etf) for target, etf in complete) < SAME:
        return f"{words}, which is the simplex ETF."
    etf_distance = f"(distance {first_etf:.2g} at first, {last_etf:.2g} now)"
    if share > share_etf and last < last_etf:
        return f"{words}; it approaches the target rather than the simplex ETF {etf_distance}."
    if share_etf > share and last_etf < last:
        return f"{words}; it is nearer to the simplex ETF {etf_distance}."
    return f"{words}. For comparison, the simplex ETF {etf_distance}."
