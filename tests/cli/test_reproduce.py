"""`nclab reproduce`: the tour."""

import json

import pytest

import nclab
from nclab.experiments import find
from nclab.experiments.small_network import NetworkConfig
from nclab.experiments.tour import Config, tour
from nclab.text import as_text
from tests.cli.runner import call

TINY = Config(NetworkConfig(samples=400, width=16, epochs=60))


def test_the_tour_tells_the_four_cases_apart() -> None:
    result = tour(TINY, seed=1)
    exact, near, random, trained = result.collapses.values()
    nc1 = [float(c.nc1_trace_ratio or 0) for c in (exact, near, trained, random)]
    assert nc1 == sorted(nc1)
    assert exact.nc1_trace_ratio == pytest.approx(0, abs=1e-12)
    assert trained.accuracy == 1.0
    assert len(result.report.layers) == 3
    text = as_text(result.show()[1])
    for title in ("exact ETF", "random cloud", "trained"):
        assert title in text
    json.dumps(result.to_dict(), allow_nan=False)


def test_the_same_seed_gives_the_same_numbers() -> None:
    first, second = tour(TINY, seed=1).to_dict(), tour(TINY, seed=1).to_dict()
    assert first == second


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(nclab.NclabError, match=r"one of tour, .*; got 'torus'"):
        find(["torus"])
    done = call("reproduce", "torus")
    assert done.code == 2
    assert done.err.count("\n") == 1
