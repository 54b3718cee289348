"""Maps of where optima change: numbers on grids, for `nclab target --map` and the docs."""

import math
from typing import Any

import torch

from nclab.errors import DataError
from nclab.theory.targets.deep_linear import shape_value, shapes
from nclab.theory.targets.grouped import program_of
from nclab.theory.targets.program import expanded
from nclab.theory.targets.setting import checked
from nclab.theory.targets.solve import solve
from nclab.theory.targets.solved import shared_out
from nclab.theory.targets.target import cosines

STEPS = 25


def imbalance_map(*, large: int = 5, small: int = 5, steps: int = STEPS) -> dict[str, Any]:
    r"""Cosine between classifier rows of minority classes, by imbalance and weight decay.

    `large` classes of R samples, `small` of one; the weight decay is $t\sqrt n$. Minority classes
    merge from $t = \sqrt{n_g}/n$ on, everything is zero from
    $\|PD^{1/2}\|_2/n$ on.
    """
    ratios = [10 ** (2 * k / (steps - 1)) for k in range(steps)]
    decays = [10 ** (-4 + 3.7 * k / (steps - 1)) for k in range(steps)]
    rows, merging, zeros = [], [], []
    for ratio in ratios:
        counts = torch.tensor([ratio] * large + [1.0] * small, dtype=torch.float64)
        n = float(counts.sum())
        merging.append(1 / math.sqrt(n))
        D = counts.sqrt()
        zeros.append(float(torch.linalg.matrix_norm(torch.diag(D) - D / len(D), 2)) / math.sqrt(n))
        row: list[float | None] = []
        for decay in decays:
            if decay >= zeros[-1]:
                row.append(None)
                continue
            program, place = program_of(counts, decay / math.sqrt(n))
            if not bool(program.apart[-1]):  # they coincide, perhaps at zero
                row.append(1.0)
                continue
            gram, _, _ = shared_out(expanded(solve(program, gap=1e-7).point, place), counts)
            row.append(float(cosines(gram)[-1, -2]))
        rows.append(row)
    return {
        "map": "imbalance",
        "ratios": ratios,
        "weight_decays": decays,
        "cosines": rows,
        "merge_at": merging,
        "zero_at": zeros,
        "classes": [large, small],
    }


def bias_map(*, num_classes: int = 10, steps: int = 2 * STEPS) -> dict[str, Any]:
    r"""Cosine between classes under mean squared error, by penalty of the bias and weight decay.

    $$\cos = \frac{s_0-s_1}{s_0+(C-1)s_1},\qquad s_1 = (\sqrt m-nt)_+,\quad
    s_0 = (\sqrt m - nt(1+\lambda_b)/\lambda_b)_+$$

    with u = nt / sqrt m the weight decay relative to the one that makes everything zero.
    """
    shares = [0.01 + 0.98 * k / (steps - 1) for k in range(steps)]
    penalties = [10 ** (-3 + 5 * k / (steps - 1)) for k in range(steps)]
    rows = []
    for share in shares:
        row = []
        for penalty in penalties:
            rest, common = 1 - share, max(1 - share * (1 + penalty) / penalty, 0.0)
            row.append((common - rest) / (common + (num_classes - 1) * rest))
        rows.append(row)
    return {
        "map": "bias",
        "num_classes": num_classes,
        "shares": shares,
        "penalties": penalties,
        "cosines": rows,
        "simplex_until": [share / (1 - share) for share in shares],
    }


def depth_map(*, decay: float = 1e-3, largest: int = 20, deepest: int = 8) -> dict[str, Any]:
    """Which known geometry is lowest under cross-entropy, by factors F and classes C.

    One sample a class. Zero wins where the penalty is too strong. No proof that nothing is lower.
    """
    classes, factors = list(range(3, largest + 1)), list(range(2, deepest + 1))
    names, rows = ["zero", "simplex ETF", "orthoplex", "polygon"], []
    for F in factors:
        row = []
        for C in classes:
            setting = checked(
                C,
                None,
                dim=None,
                loss="cross_entropy",
                weight_decay=(decay, decay),
                norms=None,
                bias=None,
                features="free",
                depth=F - 1,
                smoothing=None,
                focus=None,
                targets=None,
                average="samples",
            )
            values = {"zero": math.log(C)}
            for shape in shapes(C):
                values[shape.name] = shape_value(setting, shape, decay)[1]
            row.append(names.index(min(values, key=lambda name: values[name])))
        rows.append(row)
    return {
        "map": "depth",
        "weight_decay": decay,
        "classes": classes,
        "factors": factors,
        "names": names,
        "winners": rows,
    }


MAPS = {"imbalance": imbalance_map, "bias": bias_map, "depth": depth_map}


def check_map(name: str) -> None:
    """Refuse what is no map."""
    if name not in MAPS:
        raise DataError(f"Expected a map of {', '.join(MAPS)}, got {name!r}.")


def phase_map(name: str, **options: int) -> dict[str, Any]:
    """The numbers of one map; `options` are those of its function.

    >>> phase_map("bias")["cosines"][0][0]  # a free bias: the simplex ETF
    -0.1111111111111111
    """
    check_map(name)
    return MAPS[name](**options)  # type: ignore[operator]


def draw_map(numbers: dict[str, Any]) -> Any:
    """A matplotlib figure of a map."""
    from nclab.figures.draw import draw
    from nclab.figures.targets import map_picture

    return draw(map_picture(numbers))
