"""Compare the guarantee for a fraction of the pairs with the true worst case.

For several graphs of k = floor(delta M) + 1 pairs (matching, cycles, a clique, a star, random
graphs) a search maximises the smallest cosine over the pairs of the graph, within the given norms
and loss. The search attains its value, so no valid guarantee is lower. One thread.

    python benchmarks/fraction_of_pairs.py [--json] [--starts 2] [--grid]
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from scipy.optimize import minimize

from nclab.metrics.nc2_simplex_etf import simplex_etf
from nclab.theory.certificates.certification import certify
from nclab.theory.layer_peeled import FloatArray, g

CASES = (
    (10, 5.0, 1e-5, 0.1),
    (10, 5.0, 1e-4, 0.1),
    (10, 5.0, 1e-4, 0.2),
    (10, 5.0, 1e-3, 0.1),
    (6, 4.0, 1e-4, 0.15),
    (6, 4.0, 1e-3, 0.15),
    (4, 3.0, 1e-3, 0.2),
    (12, 8.0, 1e-6, 0.08),
    (12, 8.0, 1e-5, 0.08),
)
"""Number of classes, product of the norms, excess loss, delta."""

Pairs = list[tuple[int, int]]


def graphs(num_classes: int, edges: int, rng: np.random.Generator) -> Iterator[tuple[str, Pairs]]:
    """Return graphs with this many edges, from the most even degrees to the least even."""
    order = list(combinations(range(num_classes), 2))

    def first(kind: str, pairs: Pairs) -> tuple[str, Pairs]:
        seen = dict.fromkeys([(min(pair), max(pair)) for pair in pairs] + order)
        return kind, list(seen)[:edges]

    rounds = [  # the circle method: one perfect matching after the other
        (a, b)
        for turn in range(num_classes - 1)
        for a, b in _matching(num_classes + num_classes % 2, turn)
        if max(a, b) < num_classes
    ]
    yield first("matchings", rounds)
    step = (1 + i // num_classes for i in range(edges))
    yield first("cycle", [(i % num_classes, (i + s) % num_classes) for i, s in enumerate(step)])
    yield first("clique", sorted(order, key=max))
    yield first("star", order)
    for number in range(2):
        mixed = [order[i] for i in rng.permutation(len(order))]
        yield first(f"random {number}", mixed)


def _matching(size: int, turn: int) -> Pairs:
    ring = size - 1
    return [(turn, ring)] + [((turn + i) % ring, (turn - i) % ring) for i in range(1, size // 2)]


def worst_on(
    num_classes: int, product: float, excess: float, pairs: Pairs, rng: np.random.Generator
) -> float:
    """Search feasible networks for the largest cosine that all pairs of the graph reach."""
    dim, lowest = num_classes, g(product, num_classes)
    etf = math.sqrt(product) * simplex_etf(num_classes, dim).numpy()
    centre = np.concatenate([etf, etf]).ravel()
    step = min(0.5, math.sqrt(excess / lowest))
    rows, columns = np.array(pairs).T
    unit = step * math.sqrt(product)

    def parts(y: FloatArray) -> tuple[FloatArray, FloatArray]:
        both = (centre + unit * y[:-1]).reshape(2, num_classes, dim)
        return both[0], both[1]

    def loss(W: FloatArray, H: FloatArray) -> tuple[float, FloatArray]:
        logits = W @ H.T  # (row, class)
        wrong = np.exp(np.minimum(logits - np.diag(logits), 300.0))
        np.fill_diagonal(wrong, 0.0)
        total = 1 + wrong.sum(0)
        slope = wrong / total
        np.fill_diagonal(slope, -wrong.sum(0) / total)
        return float(np.log1p(wrong.sum(0)).mean()), slope / num_classes

    def slack(y: FloatArray) -> FloatArray:
        W, H = parts(y)
        unit_rows = H / np.linalg.norm(H, axis=1, keepdims=True)
        cosines = (unit_rows[rows] * unit_rows[columns]).sum(1)
        norms = 1 - np.array([(W**2).sum(), (H**2).sum()]) / (num_classes * product)
        over = loss(W, H)[0] - lowest
        aim = -1 / (num_classes - 1) + step * y[-1]
        return np.concatenate([(cosines - aim) / step, norms / step, [1 - over / excess]])

    def slope(y: FloatArray) -> FloatArray:
        W, H = parts(y)
        lengths = np.linalg.norm(H, axis=1, keepdims=True)
        u = H / lengths
        cosines = (u[rows] * u[columns]).sum(1)
        out = np.zeros((len(pairs) + 3, 2, num_classes, dim))
        at = np.arange(len(pairs))
        out[at, 1, rows] = (u[columns] - cosines[:, None] * u[rows]) / lengths[rows] / step
        out[at, 1, columns] = (u[rows] - cosines[:, None] * u[columns]) / lengths[columns] / step
        out[-3, 0] = -2 * W / (num_classes * product * step)
        out[-2, 1] = -2 * H / (num_classes * product * step)
        gradient = loss(W, H)[1]
        out[-1, 0], out[-1, 1] = -gradient @ H / excess, -gradient.T @ W / excess
        last = np.zeros((len(out), 1))
        last[: len(pairs)] = -1.0
        return np.hstack([unit * out.reshape(len(out), -1), last])

    down = np.zeros(len(centre) + 1)
    down[-1] = -1.0
    result = minimize(
        lambda y: -y[-1],
        np.append(0.3 * rng.normal(size=len(centre)), 0.0),
        jac=lambda y: down,
        method="SLSQP",
        constraints={"type": "ineq", "fun": slack, "jac": slope},
        options={"maxiter": 300, "ftol": 1e-8},
    )

    def repaired(share: float) -> tuple[float, float]:
        W, H = parts(np.append(share * result.x[:-1], 0.0))
        W = W * math.sqrt(num_classes * product / (W**2).sum())
        H = H * math.sqrt(num_classes * product / (H**2).sum())
        u = H / np.linalg.norm(H, axis=1, keepdims=True)
        return loss(W, H)[0] - lowest, float((u[rows] * u[columns]).sum(1).min())

    low, high = 0.0, 1.0
    if repaired(1.0)[0] <= excess:
        return repaired(1.0)[1]
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if repaired(middle)[0] <= excess else (low, middle)
    return repaired(low)[1]


def run(case: tuple[int, float, float, float], starts: int) -> dict[str, object]:
    """Return the worst graph that the search found and the guarantees for one case."""
    num_classes, product, excess, delta = case
    rng = np.random.default_rng(0)
    total = num_classes * (num_classes - 1) // 2
    edges = math.floor(delta * total + 1e-9) + 1
    root = math.sqrt(product)
    began = time.perf_counter()
    certificate = certify(num_classes, root, root, g(product, num_classes) + excess, delta)
    took = time.perf_counter() - began
    found = {
        kind: max(worst_on(num_classes, product, excess, pairs, rng) for _ in range(starts))
        for kind, pairs in graphs(num_classes, edges, rng)
    }
    worst = max(found, key=lambda kind: found[kind])
    bound = certificate.fraction_inter_upper.value
    collapse = -1 / (num_classes - 1)
    return {
        "C": num_classes,
        "product": product,
        "excess": excess,
        "delta": delta,
        "pairs": edges,
        "all_pairs": certificate.inter_upper.value,
        "guaranteed": bound,
        "attained": found[worst],
        "graph": worst,
        "found": found,
        "over": None if bound is None else (bound - collapse) / (found[worst] - collapse) - 1,
        "seconds": round(took, 3),
    }


def grid() -> None:
    """Tabulate the guarantee by delta, number of classes and product of the norms."""
    deltas = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5)
    print("how far from -1/(C-1) the guarantee is, as a share of the way to 1")
    print(f"{'C':>4} {'ab':>5} {'e/m':>7} {'all':>8} " + " ".join(f"{d:>8}" for d in deltas))
    for num_classes, products in ((4, (2.0, 3.0, 6.0)), (10, (2.5, 5.0, 10.0)), (30, (4.0, 8.0))):
        for product in products:
            for relative in (1e-4, 1e-3, 1e-2):
                loss, root = g(product, num_classes) * (1 + relative), math.sqrt(product)
                cells, every = [], None
                for delta in deltas:
                    certificate = certify(num_classes, root, root, loss, delta)
                    every = certificate.inter_upper.value
                    cells.append(certificate.fraction_inter_upper.value)
                shown = [
                    "none"
                    if value is None
                    else f"{(value + 1 / (num_classes - 1)) * (num_classes - 1) / num_classes:.4f}"
                    for value in (every, *cells)
                ]
                line = " ".join(f"{cell:>8}" for cell in shown)
                print(f"{num_classes:>4} {product:>5} {relative:>7.0e} {line}")


def main() -> None:
    """Run all cases and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print a list of results as JSON")
    parser.add_argument("--starts", type=int, default=2, help="starts per graph")
    parser.add_argument("--grid", action="store_true", help="only the guarantee, over a grid")
    options = parser.parse_args()
    if options.grid:
        grid()
        return
    results = []
    if not options.json:
        print(
            f"{'C':>3} {'ab':>4} {'excess':>7} {'delta':>5} {'k':>3} {'all pairs':>9} "
            f"{'bound':>9} {'attained':>9} {'over':>6}  graph"
        )
    for case in CASES:
        row = run(case, options.starts)
        results.append(row)
        if not options.json:
            every = "none" if row["all_pairs"] is None else f"{row['all_pairs']:.5f}"
            print(
                f"{row['C']:>3} {row['product']:>4} {row['excess']:>7.0e} {row['delta']:>5} "
                f"{row['pairs']:>3} {every:>9} {row['guaranteed']:>9.5f} {row['attained']:>9.5f} "
                f"{row['over']:>6.1%}  {row['graph']}",
                flush=True,
            )
    if options.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
