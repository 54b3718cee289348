"""The claim about a fraction of the pairs, and the networks that test it."""

import numpy as np
import pytest

from nclab.claims.claim import Verdict
from nclab_papers.pan2023 import theorem


def numbers() -> dict[str, object]:
    """Sizes at which everything is certified twice what is attained, at the printed powers."""
    rows = [
        {"classes": c, "product": a, "delta": d, "excess": e, "certified": 1e-2 * (e / d) ** 0.5}
        for c in theorem.CLASSES
        for a in theorem.PRODUCTS
        for d in (0.1, 0.2)
        for e in (1e-6, 1e-5)
    ]
    near = [{**row, "attained": 0.99 * row["certified"]} for row in rows]
    return {"rows": near, "grid": rows, "beyond": [{"all": None, "most": -0.01}]}


def judged(**changes: object) -> Verdict:
    return theorem.pairs.judge(numbers() | changes).verdict


def test_the_verdict_depends_on_every_size_and_printed_rate() -> None:
    good = numbers()
    assert judged() is Verdict.HOLDS
    rows, grid = good["rows"], good["grid"]
    assert isinstance(rows, list)
    assert isinstance(grid, list)
    above = [{**rows[0], "attained": 2 * rows[0]["certified"]}, *rows[1:]]
    assert judged(rows=above) is Verdict.REFUTED
    far = [{**row, "attained": 0.5 * row["certified"]} for row in rows]
    assert judged(rows=far) is Verdict.OPEN
    assert judged(grid=[{**grid[0], "certified": None}, *grid[1:]]) is Verdict.OPEN
    slow = [{**row, "certified": 1e-2 * (row["excess"] / row["delta"]) ** 0.1} for row in grid]
    assert judged(grid=slow) is Verdict.OPEN
    steep = [{**row, "certified": row["certified"] * np.exp(2 * row["product"])} for row in grid]
    assert judged(grid=steep) is Verdict.OPEN
    assert judged(beyond=[{"all": None, "most": None}]) is Verdict.OPEN


@pytest.mark.parametrize(("classes", "degree"), [(4, 1), (6, 3), (10, 2)])
def test_the_raised_pairs_have_equal_and_larger_cosines(classes: int, degree: int) -> None:
    pairs = theorem.raised(classes, degree)
    assert (pairs == pairs.T).all()
    assert (pairs.sum(0) == degree).all()
    assert not np.diag(pairs).any()
    _, H = theorem.worst_network(classes, 3.0, pairs, 0.1)
    cosines = (H @ H.T) / np.outer(*[np.linalg.norm(H, axis=1)] * 2)
    off = ~np.eye(classes, dtype=bool)
    assert cosines[pairs > 0].min() > cosines[off & (pairs == 0)].max()
