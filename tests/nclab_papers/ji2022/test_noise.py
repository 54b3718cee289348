"""Remark 3.3 of ji2022: when noisy descent leaves the saddle, and its verdict."""

import numpy as np
import pytest

from nclab.claims.claim import Verdict
from nclab.ulpm.descent import Disturbance, descend
from nclab.ulpm.examination import example_point, example_problem
from nclab_papers.ji2022.noise import (
    FEW_STEPS,
    NOISES,
    OFF_RAY,
    ONE_SAMPLE,
    RATE,
    escape_steps,
    remark_3_3,
)
from nclab_papers.ji2022.saddle import SCALES, off_ray


@pytest.fixture(scope="module")
def numbers() -> dict[str, object]:
    gather = remark_3_3.gather
    assert gather is not None
    return dict(gather("quick"))


def test_runs_are_descent_on_the_layer_peeled_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fixed_noise(*_: object, size: tuple[int, ...]) -> np.ndarray:
        out = np.zeros(size)
        out[:, 1, 2] = 1.0
        return out

    class FixedGenerator:
        normal = staticmethod(fixed_noise)

    monkeypatch.setattr(np.random, "default_rng", lambda seed: FixedGenerator())
    _, sines = escape_steps("0.1", steps=3, seeds=1)
    push = np.zeros((8, 4))
    push[1, 2] = 0.1
    for scale, [sine] in zip(SCALES, sines, strict=True):
        theta = example_point(scale)
        for _ in range(3):
            theta = descend(example_problem(), theta, steps=1, rate=RATE).theta - RATE * push
        assert sine == pytest.approx(off_ray(theta), rel=1e-9)


def test_runs_leave_when_plain_noisy_descent_leaves() -> None:
    left, _ = escape_steps("0.1", steps=1000)
    for steps, off in ((20, False), (2000, True)):
        disturbance = Disturbance(noise=0.1, seed=5)
        run = descend(
            example_problem(), example_point(), steps=steps, rate=RATE, disturbance=disturbance
        )
        assert (off_ray(run.theta) >= OFF_RAY) == off
    assert np.nanmin(left) > 20
    assert np.nanmax(left[1]) < 2000


def test_only_large_noise_leaves_soon(numbers: dict[str, object]) -> None:
    finding = remark_3_3.judge(numbers)
    assert finding.verdict is Verdict.DEPENDS
    for run in finding.numbers["runs"]:
        if run["noise"] == "0.1":
            assert max(run["left"]) <= FEW_STEPS
        elif run["scale"] > 0.5 or run["noise"] in ("0.01", ONE_SAMPLE):
            assert set(run["left"]) == {None}


def test_the_verdict_follows_the_runs(numbers: dict[str, object]) -> None:
    def judged(left: dict[str, list[int | None]]) -> Verdict:
        runs = [
            {"noise": noise, "scale": scale, "left": left.get(noise, [50]), "off": 0.5}
            for noise in NOISES
            for scale in SCALES
        ]
        return remark_3_3.judge({**numbers, "runs": runs}).verdict

    assert judged({}) is Verdict.HOLDS
    assert judged({ONE_SAMPLE: [None]}) is Verdict.HOLDS  # its noise has no density
    assert judged({"0.01": [50, None]}) is Verdict.DEPENDS
    assert judged({"0.01": [FEW_STEPS + 1]}) is Verdict.DEPENDS
    assert judged({noise: [None] for noise in NOISES}) is Verdict.REFUTED
    none = {**numbers, "least": 0.0}
    assert remark_3_3.judge(none).verdict is Verdict.REFUTED
