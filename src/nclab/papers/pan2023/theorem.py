"""The main theorem of pan2023 and the minimum it starts from."""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from nclab.metrics.nc2_simplex_etf import simplex_etf
from nclab.papers.claim import Kind, Numbers, claim
from nclab.papers.evidence import by_hand, draws, judge_statement, tally, worked
from nclab.papers.pan2023.small_dimension import lowest_loss
from nclab.papers.pan2023.trial_data import networks
from nclab.papers.verdict import Finding, Verdict
from nclab.text import number
from nclab.theory.certificates.certificate import certify
from nclab.theory.layer_peeled import g
from nclab.theory.statements.loss_steps import minimal_loss
from nclab.theory.statements.worst_case import worst_inter, worst_intra

PRINTED = {"intra": 1 / 2, "inter": 1 / 6}
"""The powers of epsilon in the theorem."""
SLACK = 0.02
"""By how much a slope fitted over three decades may differ from its limit."""
CASES = {
    "quick": {"classes": 4, "product": 3.0, "starts": 2},
    "paper": {"classes": 10, "product": 5.0, "starts": 6},
}


@cache
def _curve(preset: str) -> Numbers:
    classes, product = int(CASES[preset]["classes"]), float(CASES[preset]["product"])
    starts = int(CASES[preset]["starts"])
    best, root = g(product, classes), math.sqrt(product)
    rows = []
    for relative in (1e-4, 1e-3, 1e-2) if preset == "quick" else (1e-5, 1e-4, 1e-3):
        excess = relative * best
        certificate = certify(classes, root, root, best + excess)
        intra = worst_intra(classes, product, excess, starts=starts)
        inter = worst_inter(classes, product, excess, starts=starts, per_class=1)
        upper = certificate.inter_upper.value
        rows.append(
            {
                "excess": excess,
                "certified_intra": 1 - float(certificate.intra_lower.value or 0.0),
                "attained_intra": 1 - intra.value,
                "certified_inter": None if upper is None else upper + 1 / (classes - 1),
                "attained_inter": inter.value + 1 / (classes - 1),
                "feasible": intra.feasible and inter.feasible,
            }
        )
    return {"classes": classes, "product": product, "rows": rows}


@claim(
    "pan2023/thm-2.3.1",
    Kind.THEOREM,
    "If the loss is within epsilon of m, then at fixed C, alpha, beta and delta most classes "
    "have intra-class cosine at least 1 - O(sqrt(epsilon)) and most pairs inter-class cosine "
    "at most -1/(C-1) + O(epsilon^(1/6)); the constants are the matter of "
    "remark-exponent and remark-delta.",
    "pan2023, Thm 2.3.1 “fraction of all pairs of classes”",
    gather=_curve,
    code="nclab.theory.certificates.certificate.certify",
    figure="guarantees",
)
def theorem(numbers: Numbers) -> Finding:
    """True where what is proved falls at least as fast as printed; sharp where what is attained
    does not fall faster."""
    rows = numbers["rows"]
    slopes = {
        f"{how}_{kind}": _slope(rows, f"{how}_{kind}")
        for how in ("certified", "attained")
        for kind in PRINTED
    }
    consistent = all(
        row["feasible"] and row[f"attained_{kind}"] <= row[f"certified_{kind}"] + 1e-9
        for row in rows
        for kind in PRINTED
        if row[f"certified_{kind}"] is not None
    )
    evidence = (
        f"C = {numbers['classes']}, alpha beta = {numbers['product']:g}: 1 - intra is proved with "
        f"slope {slopes['certified_intra']:.3f} and attained with {slopes['attained_intra']:.3f} "
        f"(printed 1/2), inter + 1/(C-1) with {slopes['certified_inter']:.3f} and "
        f"{slopes['attained_inter']:.3f} (printed 1/6): "
    )
    numbers = {**numbers, "slopes": slopes}
    proved = all(slopes[f"certified_{kind}"] >= power - SLACK for kind, power in PRINTED.items())
    sharp = any(slopes[f"attained_{kind}"] <= power + SLACK for kind, power in PRINTED.items())
    broken = any(slopes[f"attained_{kind}"] < power - SLACK for kind, power in PRINTED.items())
    if broken:
        return Finding(Verdict.REFUTED, evidence + "slower than printed", numbers)
    if not (consistent and proved):
        return Finding(Verdict.OPEN, evidence + "the proof does not cover it", numbers)
    words = "the rates may be sharp" if sharp else "the rates are right but not sharp"
    return Finding(Verdict.HOLDS, evidence + words, numbers)


def _slope(rows: Sequence[Numbers], name: str) -> float:
    """d log deviation / d log excess; 0 where nothing is proved."""
    if any(row[name] is None for row in rows):
        return 0.0
    logs = np.log([[row["excess"], row[name]] for row in rows])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def _minimum(preset: str) -> Numbers:
    rng = np.random.default_rng(0)
    batches, gaps = [], []
    for classes in (2, 3, 4, 7):
        for per_class in (1, 3):
            batches.append(minimal_loss(*networks(rng, draws(preset) // 20, classes, per_class)))
        frame = 1.7 * simplex_etf(classes, classes - 1).numpy()
        attained = minimal_loss(frame, 2 * frame[:, None])
        gaps.append(float(abs(attained.left / attained.right - 1)))
    hand = minimal_loss([[1.0], [-1.0]], [[[2.0], [0.0]], [[-2.0], [-2.0]]])
    left = (3 * math.log1p(math.exp(-4)) + math.log(2)) / 4
    return {
        **tally(*batches),
        "hand_error": by_hand((hand.left, left), (hand.right, math.log1p(math.exp(-2 * 3**0.5)))),
        "etf_gap": max(gaps),
        "plane_loss": lowest_loss(6, 2, product=3.0),
        "plane_minimum": g(3.0, 6),
    }


@claim(
    "pan2023/thm-2.3.1-minimum",
    Kind.THEOREM,
    "m = log(1 + (C-1) exp(-C/(C-1) alpha beta)) is the smallest loss of any weights and "
    "features with these norms.",
    "pan2023, Thm 2.3.1 “is the minimum achievable loss for any set of weight and feature”",
    gather=_minimum,
    code="nclab.theory.statements.loss_steps.minimal_loss",
)
@worked
def minimum(numbers: Numbers) -> Finding:
    found = judge_statement(numbers)
    evidence = (
        f"no loss is below m: {found.evidence}; simplex ETFs attain it "
        f"(relative gap {number(numbers['etf_gap'])}); six classes in two dimensions reach only "
        f"{number(numbers['plane_loss'])}, m is {number(numbers['plane_minimum'])}: d >= C - 1 is "
        "needed"
    )
    if found.verdict is not Verdict.HOLDS or numbers["etf_gap"] > 1e-9:
        worse = Verdict.REFUTED if found.verdict is Verdict.HOLDS else found.verdict
        return Finding(worse, evidence, numbers)
    any_dimension = numbers["plane_loss"] <= numbers["plane_minimum"] * (1 + 1e-6)
    return Finding(Verdict.HOLDS if any_dimension else Verdict.CORRECTED, evidence, numbers)
