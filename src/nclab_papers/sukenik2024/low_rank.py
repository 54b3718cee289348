"""Low rank beats collapse: a network built on a graph, compared with a collapsed network."""

import math
from collections.abc import Callable
from typing import Any

import torch
from scipy.optimize import minimize_scalar
from torch.nn.functional import pad

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import holds_if, relative_error
from nclab.text import number
from nclab.theory.targets.deep_heads import deep_relu, vertices
from nclab_papers.sukenik2024.descent import Factors, Model, evaluate

CASES = {
    "quick": ((10, 4, 1e-3),),
    "paper": ((10, 4, 1e-3), (6, 4, 1e-3), (10, 5, 1e-3), (15, 4, 1e-3), (10, 4, 5e-4)),
}
"""Classes, maps and weight decay of the compared networks."""
ROUNDING = 1e-8
"""Largest relative error of the formula."""
Build = Callable[[float], Factors]
"""Function that builds a network from the size of its logits."""


def collapsed(classes: int, layers: int) -> Build:
    """Return a collapsed network: every factor is a multiple of the identity."""
    eye = torch.eye(classes, dtype=torch.float64)
    return lambda size: [eye * size ** (1 / (layers + 1))] * (layers + 1)


def on_graph(classes: int, layers: int) -> Build:
    """Return a network of low rank whose classes are the edges of a complete graph.

    All layers but the last represent the vertices. X is the incidence matrix (C, r) of edges and
    vertices. Two different edges share at most one vertex, so ReLU(X X' - 1) is the identity.
    """
    r = vertices(classes)
    assert r is not None
    edges = torch.combinations(torch.arange(r))
    X = torch.zeros(classes, r, dtype=torch.float64).scatter_(1, edges, 1.0)
    left, values, right = torch.linalg.svd(X.T, full_matrices=False)
    parts = [values.sqrt()[:, None] * right, left * values.sqrt()]
    parts += [torch.eye(r, dtype=torch.float64)] * (layers - 3)
    parts += [X - 0.5, torch.eye(classes, dtype=torch.float64)]  # the columns of X' sum to 2
    norms = [float(part.norm()) for part in parts]

    def build(size: float) -> Factors:
        norm_each = (size * math.prod(norms)) ** (1 / len(parts))
        scaled = [part * (norm_each / norm) for part, norm in zip(parts, norms, strict=True)]
        return [
            pad(part, (0, classes - part.shape[1], 0, classes - part.shape[0])) for part in scaled
        ]

    return build


def best_value(build: Build, classes: int, layers: int, decay: float) -> float:
    """Return the objective of a network at its best size, computed by the model itself."""
    model = Model("relu", "mse", classes, classes, layers)
    penalty = torch.tensor([decay], dtype=torch.float64)

    def value(size: float) -> float:
        return float(evaluate(model, [part[None] for part in build(size)], penalty).value)

    optimum = minimize_scalar(value, bounds=(0.3, 1.0), options={"xatol": 1e-10})
    return float(optimum.fun)


def gather(preset: str) -> dict[str, Any]:
    """Compare the objectives of both networks with their formulas."""
    rows = []
    for classes, layers, decay in CASES[preset]:
        formula = deep_relu(classes, layers, decay)
        values = {
            name: best_value(build(classes, layers), classes, layers, decay)
            for name, build in (("collapse", collapsed), ("graph", on_graph))
        }
        rows.append(
            {
                "classes": classes,
                "layers": layers,
                "decay": decay,
                **values,
                "formula_error": relative_error(
                    (formula.collapse, values["collapse"]), (formula.graph, values["graph"])
                ),
            }
        )
    return {"rows": rows}


@claim(
    "sukenik2024/low-rank-beats-collapse",
    Kind.THEOREM,
    "Collapse is not optimal in deep unconstrained models with ReLU: at 10 classes and four maps a "
    "network of lower rank, built on a graph, has a smaller objective.",
    "sukenik2024, Sec. Abstract “DNC stops being optimal for the deep unconstrained features”",
    gather=gather,
    code="nclab.theory.targets.deep_heads.deep_relu",
)
def low_rank_beats_collapse(numbers: Numbers) -> Finding:
    """Require that the graph's network has the smaller objective, and that the formula agrees."""
    rows = numbers["rows"]
    objectives = "; ".join(
        f"C = {row['classes']}, L = {row['layers']}: {row['graph']:.8f} for the graph, "
        f"{row['collapse']:.8f} for collapse"
        for row in rows
    )
    error = max(row["formula_error"] for row in rows)
    if error > ROUNDING:
        reason = f"the formula differs from the built networks by {number(error)}; {objectives}"
        return Finding(Verdict.OPEN, reason, numbers)
    below = all(row["graph"] < row["collapse"] for row in rows)
    return holds_if(below, objectives, numbers)
