"""What a measurement means, in one plain line."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nclab.measurement.noise import noise_nc1_trace_ratio
from nclab.metrics.cosine import max_inter_pair
from nclab.text import number

if TYPE_CHECKING:
    from nclab.measurement.collapse import Collapse

WITHIN = ((0.01, "collapsed"), (0.1, "nearly collapsed"), (1.0, "partly collapsed"))
"""By tr Σ_W / tr Σ_B, which few samples in many dimensions do not make small by themselves."""
ANGLES = ((0.02, "a simplex ETF"), (0.1, "near a simplex ETF"))
"""By the mean distance of the cosines from -1/(C - 1)."""
DUALITY = ((0.1, "aligned with them"), (0.5, "roughly aligned"))
"""By the mean distance of unit means and unit rows; 0.1 is 6 degrees, 0.5 is 29."""
NO_STRUCTURE = 0.5
"""Share of the level of shuffled labels from which on the labels explain nothing."""
MERGED = 0.5
"""Centred cosine from which on two classes are named as merging."""
NAMED = 5


def verdict(collapse: "Collapse") -> str:
    """Is it collapsed, compared with what, and what stands out."""
    ratio, outstanding = collapse.nc1_trace_ratio, _outstanding(collapse)
    if ratio is None or not math.isfinite(ratio):
        first = "Within classes: nothing to compare, all class means coincide."
        return " ".join([first, *outstanding])
    per_class = collapse.samples / collapse.num_classes
    null = None if collapse.null is None else collapse.null["nc1_trace_ratio"]
    level = noise_nc1_trace_ratio(collapse.num_classes, per_class) if null is None else null
    what = "labels at random" if null is None else "labels shuffled"
    compared = f"(tr Σ_W/tr Σ_B {number(ratio)}; {what} {number(level)})."
    if 0 < NO_STRUCTURE * level <= ratio:  # then the angles are those of noise, too
        return " ".join([f"Within classes: no class structure {compared}", *outstanding])
    word = _word(ratio, WITHIN, "not collapsed")
    geometry = [part for part in (_means(collapse), _classifier(collapse)) if part]
    return " ".join([f"Within classes: {word} {compared}", *geometry, *outstanding])


def _means(collapse: "Collapse") -> str:
    off = collapse.nc2_equiangularity_means
    if off is None:
        return ""
    if collapse.dim < collapse.num_classes - 1:
        return f"Class means: too many for a simplex ETF in dimension {collapse.dim}."
    return f"Class means: {_word(off, ANGLES, 'no simplex ETF')} (cosines off by {number(off)})."


def _classifier(collapse: "Collapse") -> str:
    apart = collapse.nc3_self_duality
    if apart is None:
        return ""
    return f"Classifier: {_word(apart, DUALITY, 'not aligned')} (apart by {number(apart)})."


def _outstanding(collapse: "Collapse") -> list[str]:
    """Classes that are merged, dead or lost."""
    found = []
    closest = collapse.centred_max_inter
    if collapse.look is not None and closest is not None and closest > MERGED:
        pair = sorted(collapse.classes[place] for place in max_inter_pair(collapse.look))
        one, other = map(collapse.name_of, pair)
        found.append(f"Classes {one} and {other} merge (centred cosine {number(closest)}).")
    dead = (collapse.moments.zero_counts == collapse.counts).nonzero().flatten().tolist()
    if dead:
        found.append(f"Dead, all features zero: {_listed(collapse, dead)}.")
    if collapse.class_loss is not None:
        guess = math.log(collapse.num_classes) * (1 - 1e-9)  # up to rounding
        lost = (collapse.class_loss >= guess).nonzero().flatten().tolist()
        if lost:
            found.append(f"Lost, no better than guessing: {_listed(collapse, lost)}.")
    return found


def _listed(collapse: "Collapse", places: Sequence[int]) -> str:
    names = [collapse.name_of(collapse.classes[place]) for place in places[:NAMED]]
    more = f" and {len(places) - NAMED} more" if len(places) > NAMED else ""
    return f"class{'es' if len(places) > 1 else ''} {', '.join(names)}{more}"


def _word(value: float, levels: Sequence[tuple[float, str]], otherwise: str) -> str:
    return next((word for limit, word in levels if value <= limit), otherwise)
