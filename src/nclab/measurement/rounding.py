r"""What rounding has done to a measurement, where that is more than a millionth.

Class means are off by about $e\,s$, with s the largest rms norm of a class and
$e = 16\sqrt{n + d + C}\,u$, u half a unit in the last place of float64. What is made of differences
of means is off by that over the differences; docs/metrics.md has the error of every metric.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from nclab.metrics.nc1_variability import DOUBTFUL
from nclab.metrics.rows import centred_rows, mean_norms, mean_pairs, scaled_rows, weight_norm
from nclab.metrics.view import View
from nclab.statistics import ClassMoments
from nclab.statistics.norms import VANISHES, norm, row_norms
from nclab.statistics.second_pass import ReferencePass
from nclab.statistics.sums import unit_error

TINY = 1e-120
"""Features below this have spreads whose squares vanish."""
STEP = 2.0**-1074
"""Of the smallest numbers of float64, which have no more digits."""
CENTRED = ("centred_min_intra", "centred_mean_intra", "centred_max_inter", "centred_mean_inter")
ANGLES = ("nc2_equiangularity_means", "nc2_cosine_std_means", "nc3_self_duality", "unc3_duality")
WHOLE = ("nc1_trace_ratio", "nc2_norm_variation_means", "nc3_frobenius")
PAIRS = ("cdnv", "directional_cdnv", "ncc_error_bound")
RAW = ("nc3_alignment_min", "nc3_alignment_mean")
DECISIONS = (
    *("accuracy", "nc4_agreement", "nc4_cosine_agreement", "reference_ncc_agreement"),
    *("margin", "normalised_margin"),
)
ROWS = ("nc2_equiangularity_weights", "nc2_cosine_std_weights", "minority_cosine")
SQUARES = ("nc1_trace_pinv", *WHOLE, *PAIRS, "rankme", "lidar", *CENTRED)
NEAR = "class means differ by so little beside the size of the features"
HELD_OUT = ("strong_test_collapse", "weak_test_collapse", "reference_mean_shift")


class Doubt(NamedTuple):
    """Metrics that share a cause, and how far off they may be."""

    metrics: tuple[str, ...]
    error: float
    cause: str

    def line(self, values: Mapping[str, float | None]) -> str:
        """What to say; empty where the error is small or none of the metrics has a value."""
        named = [name for name in self.metrics if values.get(name) is not None]
        if not self.error >= DOUBTFUL or not named:
            return ""
        off = f"right to about {self.error:.1g} only" if self.error < 1 else "rounding"
        return f"{', '.join(named)}: {off}, as {self.cause}."


def lost_to_rounding(view: View, values: Mapping[str, float | None]) -> list[str]:
    """One line for each cause; none where every number is right to a millionth."""
    found = [*_of_means(view), *_of_weights(view)]
    if view.second_pass is not None and view.second_pass.near_centre:
        share = view.second_pass.near_centre / int(view.second_pass.counts.min())
        near = view.second_pass.near_centre
        cause = f"{near} features lie on the centre of the classes up to rounding"
        found.append(Doubt(CENTRED, max(share, DOUBTFUL), cause))
    if view.second_pass is not None:
        reach = float(view.second_pass.reach_sums.sum()) / int(view.second_pass.counts.sum())
        error = 2 * unit_error(view.moments) * view.moments.size
        found.append(Doubt(("nc1_within_variation",), _over(error, reach), NEAR))
    lines = [line for line in (doubt.line(values) for doubt in found) if line]
    return [*lines, *_vanishing_spreads(view.moments), *_vanishing_logits(view)]


def _vanishing_spreads(moments: ClassMoments) -> list[str]:
    """Of all features, or of classes far smaller than the others if nothing else varies."""
    metrics = (*SQUARES, "nc1_within_variation")
    if 0 < moments.size < TINY or not float(moments.variances.sum()) < TINY**2:
        return _vanishing(moments.size, metrics)
    sizes = moments.mean_square_norms.sqrt()
    lost = (sizes < TINY) & (moments.counts > 1) & (moments.counts > moments.zero_counts)
    if not lost.any():
        return []
    cause = f"squares of features below {TINY:g}, in {int(lost.sum())} classes, vanish"
    return [f"{', '.join(metrics)}: {cause}. Rescale them."]


def _vanishing_logits(view: View) -> list[str]:
    """Products of features and classifier that are 0, or have lost digits, all of them."""
    if view.weight is None or view.logits is None or view.moments.size == 0:
        return []
    weight = view(weight_norm)
    if not 0 < weight < VANISHES / view.moments.size:
        return []
    if not bool((view.logits.margins.abs() < VANISHES).all()):  # a bias decides
        return []
    return [f"{', '.join(DECISIONS)}: logits below {VANISHES:g} vanish. Rescale the classifier."]


def _vanishing(size: float, metrics: tuple[str, ...]) -> list[str]:
    if not 0 < size < TINY:
        return []
    return [f"{', '.join(metrics)}: squares of features of size {size:.1g} vanish. Rescale them."]


def _of_means(view: View) -> list[Doubt]:
    moments = view.moments
    error = unit_error(moments) * moments.size
    lengths = view(mean_norms)
    shortest = float(lengths.min())
    apart = math.sqrt(view(mean_pairs).distances.closest)
    return [
        Doubt(ANGLES, _over(2 * error, shortest), "a class mean is so near to the centre of all"),
        Doubt(WHOLE, _over(4 * error, norm(lengths)), NEAR),
        Doubt(PAIRS, _over(4 * error, apart), "two class means are so near to each other"),
        Doubt(RAW, _of_raw_means(moments), "a class mean is so small beside its features"),
    ]


def _of_raw_means(moments: ClassMoments) -> float:
    """The largest error of a mean as it is, of its own length: by the features of its class."""
    lengths = row_norms(moments.means)
    present = lengths > 0
    if not present.any():
        return 0.0
    errors = unit_error(moments) * moments.mean_square_norms.sqrt() + moments.dim * STEP
    return float((errors[present] / lengths[present]).max())


def _of_weights(view: View) -> list[Doubt]:
    if view.weight is None:
        return []
    lengths = row_norms(centred_rows(view.weight))
    error = unit_error(view.moments) * float(row_norms(scaled_rows(view.weight)).max())
    cause = "rows of the classifier differ by so little beside their size"
    # A row that is nothing but rounding counts as 0 and leaves only metrics that do not read it.
    shortest = float(lengths[lengths > 0].min()) if lengths.any() else 0.0
    rows = Doubt((*ROWS, *RAW, "nc3_self_duality"), _over(2 * error, shortest), cause)
    whole = Doubt(("nc2_norm_variation_weights",), _over(3 * error, float(lengths.mean())), cause)
    return [rows, whole]


def _over(error: float, size: float) -> float:
    """A relative error; 0 where nothing is there, for which there is no value either."""
    return error / size if 0 < size < math.inf else 0.0


def lost_beside_reference(
    reference: ReferencePass, moments: ClassMoments, values: Mapping[str, float | None]
) -> list[str]:
    """The same for what compares features with the class means of other data."""
    size = max(reference.moments.size, moments.size)
    spread = norm(reference.moments.centred_means) / math.sqrt(reference.moments.num_classes)
    error = 4 * unit_error(moments) * size
    cause = "class means of the reference differ by so little beside the size of the features"
    line = Doubt(HELD_OUT, _over(error, spread), cause).line(values)
    found = [line] if line else []
    return found + _vanishing(size, (*HELD_OUT, "reference_spread_ratio"))
