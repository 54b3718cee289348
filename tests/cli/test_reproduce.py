"""`nclab reproduce`: the tour, reuse, and what is refused."""

import json
from pathlib import Path

import pytest

import nclab
from nclab.experiments import find, tour
from nclab.experiments.main_job import Job
from nclab.experiments.small_network import NetworkConfig
from nclab.text import as_text
from tests.cli.runner import call

TINY = tour.Config(NetworkConfig(samples=400, width=16, epochs=60))


def test_the_tour_tells_the_four_cases_apart() -> None:
    numbers = tour.tour(TINY, seed=1)
    exact, near, random, trained = numbers["cases"].values()
    nc1 = [case["nc1_trace_ratio"] for case in (exact, near, trained, random)]
    assert nc1 == sorted(nc1)
    assert exact["nc1_trace_ratio"] == pytest.approx(0, abs=1e-12)
    assert trained["accuracy"] == 1.0
    assert len(numbers["layers"]) == 3
    text = "".join(as_text(part) for part in tour.show(numbers))
    for words in ("exact ETF", "random cloud", "trained", "effective depth"):
        assert words in text
    assert (
        json.loads(json.dumps(numbers, allow_nan=False))["cases"].keys() == numbers["cases"].keys()
    )


def test_the_same_seed_gives_the_same_numbers() -> None:
    assert tour.tour(TINY, seed=1) == tour.tour(TINY, seed=1)


def test_what_is_finished_is_reused_until_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tour.PRESETS, "quick", TINY)

    def reused(**changes: object) -> list[str]:
        job = Job(**{"preset": "quick", "seeds": (0,), "out": tmp_path, **changes})  # type: ignore[arg-type]
        job.run(["tour"], lambda *_: None)
        assert job.numbers["tour"]["seeds"] == list(job.seeds)
        return job.reused

    assert reused() == []
    assert reused() == ["tour"]
    assert reused(seeds=(1,)) == []
    assert reused(seeds=(1,)) == ["tour"]
    assert reused(seeds=(1,), fresh=True) == []
    (tmp_path / "tour" / "numbers.json").write_text('{"experiment": "to')
    assert reused(seeds=(1,)) == []


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(nclab.NclabError, match=r"one of tour, .*; got 'torus'"):
        find(["torus"])
    done = call("reproduce", "torus")
    assert done.code == 2
    assert done.err.count("\n") == 1
