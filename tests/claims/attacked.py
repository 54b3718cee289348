"""Numbers of experiments on which wrong code shows, and the results that no code can be wrong for.

An order survives a factor and a bound may survive a sign, so that a result is judged on several
numbers: those of the paper, some that contradict it, some whose effect is just too small. Wrong
code is noticed where one of the verdicts changes. What nclab computes from rows is computed while
the code is wrong.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

from nclab.claims.claim import Verdict
from nclab.claims.registry import claims
from nclab_papers.ji2022.fig2 import steps_to_level
from nclab_papers.pan2023.fig33 import depth_rows
from nclab_papers.pan2023.guarantees import Config, curve_row
from tests.claims.trained import NUMBERS, QUANTITIES, SEEDS, TRAINED_SPOILS, turned
from tests.nclab_papers.pan2023.made_networks import conjectured, needing
from tests.nclab_papers.pan2023.spoiled import each
from tests.nclab_papers.pan2023.thesis_rows import ERRORS
from tests.nclab_papers.shared.studies import where

Numbers = dict[str, Any]
Make = Callable[[], Numbers]
Change = Callable[[float], Callable[[Numbers], Numbers]]

RESULTS = {claim.id: claim for claim in claims() if claim.empirical}
TOO_SMALL = 0.8
"""Of a margin; times 1.5 it is beyond."""


def found(name: str) -> tuple[Verdict, ...]:
    """What a result is found to be on each of its numbers."""
    judge = RESULTS[name].judge
    return tuple(judge(make()).verdict for make in CASES.get(name, (paper(name),)))


def paper(name: str) -> Make:
    """The numbers that reproduce a result."""
    return lambda: NUMBERS[RESULTS[name].needs]


def against(name: str) -> Make:
    """Numbers that contradict it."""
    return lambda: TRAINED_SPOILS[name](NUMBERS[RESULTS[name].needs])


def changed(name: str, change: Callable[[Numbers], Numbers]) -> Make:
    """The numbers that reproduce it, changed now, before any code is wrong."""
    numbers = change(NUMBERS[RESULTS[name].needs])
    return lambda: numbers


def mild(name: str, change: Change) -> Make:
    """Numbers that are changed by how much its effect must shrink to be just too small."""
    by = 1.0
    for _ in range(4):  # an effect need not be proportional to what is changed
        effect = RESULTS[name].judge(changed(name, change(by))()).numbers
        by *= TOO_SMALL * effect["margin"] / effect["estimate"]
    return changed(name, change(by))


def scaled(*columns: str) -> Change:
    """Some columns times a number."""
    return lambda by: each("rows", lambda row: {name: by * row[name] for name in columns})


def powered(*columns: str) -> Change:
    """Some columns to a power: their logarithms times a number."""
    return lambda by: each("rows", lambda row: {name: row[name] ** by for name in columns})


def of_studies(change: Callable[[float, float], float], *columns: str) -> Change:
    """Some columns of a study, which keeps its rows as columns, changed by a number."""

    def by(much: float) -> Callable[[Numbers], Numbers]:
        def new(numbers: Numbers) -> Numbers:
            networks = dict(numbers["networks"])
            for name in columns:
                networks[name] = [change(one, much) for one in networks[name]]
            return {**numbers, "networks": networks}

        return new

    return by


def with_depths(first: Callable[[float], int] | None = None) -> Make:
    """Figure 3.3 with depths computed from its layers, the first near-perfect one by decay."""
    numbers = NUMBERS["pan2023_fig33"]
    rows = [
        {**row, "ncc_accuracy": float(row["layer"] >= first(row["weight_decay"]))} if first else row
        for row in numbers["rows"]
    ]
    return lambda: {**numbers, "rows": rows, "depths": depth_rows(rows, ERRORS)}


def past_after(steps: int) -> Make:
    """Figure 2 with so many steps until normalised descent is past plain descent."""

    def make() -> Numbers:
        names = ("margin", *(name for name in QUANTITIES))
        level = dict.fromkeys(names, 1.0)
        early = level | {"margin": 0.0}
        rows = [{"step": step, **(early if step < steps else level)} for step in range(30)]
        count = steps_to_level({"descent": [level], "normalised": rows})
        per_seed = [{"seed": seed, "steps_to_level": count} for seed in SEEDS]
        return {**NUMBERS["ji2022_fig2"], "per_seed": per_seed}

    return make


def needing_e(e: float) -> Make:
    """The conjectures with the smallest e of networks that need just this one."""
    return lambda: {**NUMBERS["pan2023_conjectures"], **conjectured(needing(e))}


def worst_cases(beyond: float = 0.0) -> Make:
    """Two points of the curve of guarantees, certified and searched in small, as if the search had
    found classes that spread by so much more."""

    def make() -> Numbers:
        curve = [curve_row(Config(starts=1), relative, 0) for relative in (1e-3, 0.1)]
        for row in curve:
            row["true_intra"] = (row["true_intra"] or 0.0) - beyond
        return {**NUMBERS["pan2023_guarantees"], "curve": curve}

    return make


def steep(numbers: Numbers) -> Numbers:
    """Curves of descent that fall like t^-0.4."""
    spoils = [turned("starts.*.descent", name, 3.6) for name in QUANTITIES]
    return reduce(lambda made, spoil: spoil(made), spoils, numbers)


def late_falls(numbers: Numbers) -> Numbers:
    """Curves of Figure 3 that rise at seven of twelve times and fall then: 21 pairs of 66 rise."""
    rows = []
    for row in numbers["rows"]:
        others = [one for one in numbers["rows"] if one["seed"] == row["seed"]]
        place = others.index(row)
        source = others[6 - place] if place < 7 else row
        rows.append({**row, **{name: source[name] for name in QUANTITIES}})
    return {**numbers, "rows": rows}


DEGREE = scaled("min_intra", "max_inter")
LOGARITHMS = of_studies(lambda one, much: one**much, "nc0", "nc1", "nc2", "nc3", "raw_nc3", "loss")
DISTANCES = of_studies(lambda one, much: one * much, "from_etf", "from_seli", "from_target")
MILD: dict[str, Change] = {
    "pan2023/sec-3.1-grows": DEGREE,
    "pan2023/sec-3.1-affine-above-plain": DEGREE,
    "pan2023/sec-3.1-falls-without-norm": DEGREE,
    "pan2023/sec-3.1-norm-helps-decay": DEGREE,
    "pan2023/sec-1.4-simpler-data": DEGREE,
    "pan2023/sec-3.1-norms-fall": powered("alpha", "beta"),
    "pan2023/sec-3.2-inter-unstable": scaled("max_inter"),
    "fang2021/minority-networks": of_studies(lambda one, much: one * much, "minority"),
    "thrampoulidis2022/networks-follow-seli": DISTANCES,
    "findings/imbalance-target": DISTANCES,
    "zhao2026/coupled-collapses": LOGARITHMS,
    "zhao2026/cannot-emerge": LOGARITHMS,
    "zhao2026/momentum-accelerates": LOGARITHMS,
    "findings/optimizer-adamw-matched": LOGARITHMS,
    "findings/optimizer-centred-raw": LOGARITHMS,
    "findings/depth-width": of_studies(lambda one, much: one * much, "rank"),
}
"""Results of order: what their effect is made of."""

CASES: dict[str, tuple[Make, ...]] = {
    **{name: (paper(name), mild(name, change)) for name, change in MILD.items()},
    **{
        f"{paper_key}/conjecture-{number}{data}": (needing_e(0.04), needing_e(0.2))
        for number in ("3.1.1", "3.2.1", "3.2.2")
        for paper_key, data in (("pan2023", ""), ("findings", "-teacher"))
    },
    "pan2023/sec-3.1-only-affine": (
        paper("pan2023/sec-3.1-only-affine"),
        changed(
            "pan2023/sec-3.1-only-affine",
            each(
                "rows", lambda row: {"min_intra": row["min_intra"] + 0.2 * (row["norm"] == "plain")}
            ),
        ),
    ),
    "pan2023/sec-3.2-early-layers": (with_depths(), with_depths(lambda decay: 10)),
    "pan2023/sec-3.2-depth-falls": (
        with_depths(),
        with_depths(lambda decay: 6 - (decay == 5e-3)),  # 0.4 layers a decade
    ),
    "pan2023/sec-3.2-gap-rises": (
        paper("pan2023/sec-3.2-gap-rises"),
        changed("pan2023/sec-3.2-gap-rises", DEGREE(0.008 / 0.91)),  # from first to last 0.008
    ),
    "findings/guarantees-worst-case": (worst_cases(), worst_cases(beyond=0.1)),
    "ji2022/sec-5.3-slow": (
        paper("ji2022/sec-5.3-slow"),
        changed("ji2022/sec-5.3-slow", steep),
    ),
    **{
        f"ji2022/fig-2{panel}": (paper(f"ji2022/fig-2{panel}"), against(f"ji2022/fig-2{panel}"))
        for panel in "abcd"
    },
    "findings/layer-peeled-normalised": (past_after(12), past_after(20)),
    **{
        name: (paper(name), against(name), changed(name, late_falls))
        for name in ("ji2022/fig-3d", "ji2022/sec-4-realistic")
    },
    "zhao2026/decoupled-does-not": (
        against("zhao2026/decoupled-does-not"),
        changed(
            "zhao2026/decoupled-does-not",
            where("nc1", lambda row: max(row["weight_decay"], 1e-5) ** -0.08, optimizer="adamw"),
        ),
    ),
    "sukenik2024/descent-finds-low-rank": (
        paper("sukenik2024/descent-finds-low-rank"),
        against("sukenik2024/descent-finds-low-rank"),
        changed(
            "sukenik2024/descent-finds-low-rank",  # in every other run of each choice
            where("rank", 6, layers=4),
        ),
    ),
    "findings/depth-orthoplex": (
        paper("findings/depth-orthoplex"),
        against("findings/depth-orthoplex"),
        changed(
            "findings/depth-orthoplex",  # in two of six runs
            where("objective", lambda row: 0.9 if row["layers"] == 3 else 1.0, kind="linear"),
        ),
    ),
}
"""Result -> the numbers on which it is judged with right and with wrong code; else the paper's."""

TRAINED = "its numbers come out of training; they are spoiled and shuffled instead"
EITHER_WAY = "a difference that counts either way: no sign of it can be wrong"
WITHOUT_CODE = {
    **{
        f"findings/terminal-{what}-{network}": TRAINED
        for what in ("collapse", "generalisation", "margins", "robustness", "centres")
        for network in ("vgg", "mlp")
    },
    "pan2023/sec-3.1-converges": TRAINED,
    "pan2023/sec-3.1-fails-without-norm": TRAINED,
    "pan2023/sec-3.2-largest-decay-fails": TRAINED,
    "pan2023/sec-3.2-accuracy-rises": TRAINED,
    "pan2023/sec-3.2-intra-rises": TRAINED,
    "pan2023/sec-3.2-inter-positive": "its numbers come out of training; they are spoiled instead",
    "findings/guarantees-telling": "a certificate of a trained network; `certify` is attacked",
    "findings/layer-peeled-invariants": "a drift that the flow records; the drift is spoiled",
    "ji2022/fig-3a": "its numbers come out of training; they are spoiled instead",
    "ji2022/fig-3b": "the sign of a difference of likelihoods, which no factor changes",
    "ji2022/fig-3c": TRAINED,
    "findings/optimizer-parity": TRAINED,
    "findings/optimizer-sgdw-matched": EITHER_WAY,
    "findings/imbalance-tail-angles": EITHER_WAY,
    "findings/losses-gap": EITHER_WAY,
    "zhou2022/collapse-alike": EITHER_WAY,
    "zhou2022/generalise-alike": EITHER_WAY,
}
"""Results that link no code, with the reason."""
