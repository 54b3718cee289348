"""Remark 3.3 of ji2022: when noisy descent leaves the saddle, and what that says."""

import numpy as np
import pytest

from nclab.claims.claim import Verdict
from nclab.ulpm.descent import Disturbance, descend
from nclab.ulpm.examination import example_point, example_problem, off_ray
from nclab_papers.ji2022 import leaving
from nclab_papers.ji2022.leaving import FEW, NOISES, ONE_SAMPLE, RATE, SCALES, leave


@pytest.fixture(scope="module")
def numbers() -> dict[str, object]:
    gather = leaving.remark_3_3.gather
    assert gather is not None
    return dict(gather("quick"))


def test_descent_is_that_of_the_layer_peeled_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def still(*_: object, size: tuple[int, ...]) -> np.ndarray:
        out = np.zeros(size)
        out[:, 1, 2] = 1.0
        return out

    class Fixed:
        normal = staticmethod(still)

    monkeypatch.setattr(np.random, "default_rng", lambda seed: Fixed())
    _, sines = leave("0.1", steps=3, seeds=1)
    push = np.zeros((8, 4))
    push[1, 2] = 0.1
    for scale, [sine] in zip(SCALES, sines, strict=True):
        theta = example_point(scale)
        for _ in range(3):
            theta = descend(example_problem(), theta, steps=1, rate=RATE).theta - RATE * push
        assert sine == pytest.approx(off_ray(theta), rel=1e-9)


def test_it_leaves_when_the_usual_descent_does() -> None:
    when, _ = leave("0.1", steps=1000)
    for steps, off in ((20, False), (2000, True)):
        shaken = Disturbance(noise=0.1, seed=5)
        run = descend(
            example_problem(), example_point(), steps=steps, rate=RATE, disturbance=shaken
        )
        assert (off_ray(run.theta) >= leaving.OFF) == off
    assert np.nanmin(when) > 20
    assert np.nanmax(when[1]) < 2000


def test_only_large_noise_leaves_soon(numbers: dict[str, object]) -> None:
    found = leaving.remark_3_3.judge(numbers)
    assert found.verdict is Verdict.UNDECIDED
    for run in found.numbers["runs"]:
        if run["noise"] == "0.1":
            assert max(run["left"]) <= FEW
        elif run["scale"] > 0.5 or run["noise"] in ("0.01", ONE_SAMPLE):
            assert set(run["left"]) == {None}


def test_the_verdict_follows_the_runs(numbers: dict[str, object]) -> None:
    def judged(left: dict[str, list[int | None]]) -> Verdict:
        runs = [
            {"noise": noise, "scale": scale, "left": left.get(noise, [50]), "off": 0.5}
            for noise in NOISES
            for scale in SCALES
        ]
        return leaving.remark_3_3.judge({**numbers, "runs": runs}).verdict

    assert judged({}) is Verdict.HOLDS
    assert judged({ONE_SAMPLE: [None]}) is Verdict.HOLDS  # its noise is not of the family
    assert judged({"0.01": [50, None]}) is Verdict.UNDECIDED
    assert judged({"0.01": [FEW + 1]}) is Verdict.UNDECIDED
    assert judged({noise: [None] for noise in NOISES}) is Verdict.REFUTED
    none = {**numbers, "least": 0.0}
    assert leaving.remark_3_3.judge(none).verdict is Verdict.REFUTED
