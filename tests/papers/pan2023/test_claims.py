"""Every judge of chapter 3 says reproduced for the thesis's own behaviour and not for others."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from nclab.papers.pan2023.training_claims import SENTENCES, Sentence, findings
from nclab.papers.verdict import Verdict
from tests.papers.pan2023.thesis_rows import EXPERIMENTS

Numbers = dict[str, Any]
NOT = Verdict.NOT_REPRODUCED


def each(key: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Numbers], Any]:
    """Numbers with every row under a key changed."""
    return lambda numbers: numbers | {key: [row | change(row) for row in numbers[key]]}


def mirrored(row: dict[str, Any]) -> dict[str, Any]:
    """Weight decay upside down."""
    return {"weight_decay": 1e-6 / row["weight_decay"]}


SPOILED: dict[str, Callable[[Numbers], Any]] = {
    "3.1-converges": each("rows", lambda row: {"converged": False, "accuracy": 0.5}),
    "3.1-fails-without-norm": each("rows", lambda row: {"converged": True}),
    "3.1-only-affine": each(
        "rows", lambda row: {"norm": "plain" if row["norm"] == "affine" else "affine"}
    ),
    "3.1-grows": each("rows", mirrored),
    "3.1-grows-to-3e-3": each("rows", mirrored),
    "3.1-affine-above-plain": each(
        "rows",
        lambda row: {"norm": {"affine": "plain", "plain": "affine"}.get(row["norm"], "none")},
    ),
    "3.1-affine-above-plain-from-1e-3": each(
        "rows",
        lambda row: {"norm": {"affine": "plain", "plain": "affine"}.get(row["norm"], "none")},
    ),
    "3.1-affine-above-none": each(
        "rows", lambda row: {"norm": {"affine": "none", "none": "affine"}.get(row["norm"], "plain")}
    ),
    "3.1-falls-without-norm": each("rows", mirrored),
    "3.1-norm-helps-decay": each("rows", mirrored),
    "3.1-norms-fall": each("rows", mirrored),
    "3.1-guarantee-grows": each("rows", mirrored),
    "3.1-guarantee-kept": each("rows", lambda row: {"guarantee_slack": -0.1}),
    "1.4-simpler-data": each("rows", lambda row: {"teacher_depth": 10 - row["teacher_depth"]}),
    "3.2-early-layers": each("depths", lambda row: {"depth": 12}),
    "3.2-largest-decay-fails": each("runs", lambda row: {"converged": True, "accuracy": 1.0}),
    "3.2-accuracy-rises": each("rows", lambda row: {"ncc_accuracy": 1 - 0.02 * row["layer"]}),
    "3.2-intra-rises": each("rows", lambda row: {"min_intra": 1 - 0.02 * row["layer"]}),
    "3.2-gap-rises": each("rows", lambda row: {"max_inter": 0.2 * row["layer"]}),
    "3.2-depth-falls": each("depths", lambda row: {"depth": round(1000 * row["weight_decay"])}),
    "3.2-inter-positive": each("rows", lambda row: {"max_inter": -0.1}),
    "3.2-inter-unstable": each("rows", lambda row: {"max_inter": -0.1}),
    "conjecture-3.1.1": each("intervals", lambda row: {"median": 0.2, "high": 0.3}),
    "conjecture-3.2.1": each("intervals", lambda row: {"median": 0.2, "high": 0.3}),
    "conjecture-3.2.2": each("intervals", lambda row: {"median": 0.2, "high": 0.3}),
}
"""For every claim, a behaviour that contradicts it."""


def flat(key: str, **values: float) -> Callable[[Numbers], Any]:
    """Numbers in which nothing moves."""
    return each(key, lambda row: values)


FLAT: dict[str, Callable[[Numbers], Any]] = {
    "3.1-grows": flat("rows", min_intra=0.5, max_inter=0.1),
    "3.1-grows-to-3e-3": flat("rows", min_intra=0.5, max_inter=0.1),
    "3.1-falls-without-norm": flat("rows", min_intra=0.5, max_inter=0.1),
    "3.1-norm-helps-decay": flat("rows", min_intra=0.5, max_inter=0.1),
    "3.1-guarantee-grows": flat("rows", guaranteed_mean_intra=0.5),
    "1.4-simpler-data": flat("rows", min_intra=0.5, max_inter=0.1),
    "3.2-accuracy-rises": flat("rows", ncc_accuracy=0.9),
    "3.2-intra-rises": flat("rows", min_intra=0.5),
    "3.2-gap-rises": flat("rows", min_intra=0.5, max_inter=0.1),
    "3.2-depth-falls": flat("depths", depth=3),
}
"""For every claim that something rises or falls, a behaviour in which it stays."""


@pytest.mark.parametrize("name", list(FLAT))
def test_a_flat_line_neither_rises_nor_falls(name: str) -> None:
    sentence = next(one for one in SENTENCES if one.name == name)
    found = sentence.judge(FLAT[name](EXPERIMENTS[sentence.experiment]()))
    assert found.verdict is NOT, found.evidence


def test_one_flat_network_is_not_hidden_among_many_layers() -> None:
    numbers = EXPERIMENTS["pan2023_fig33"]()
    for row in numbers["rows"]:
        if row["seed"] == 0 and row["weight_decay"] == 1e-3:
            row["min_intra"] = 0.5
    found = findings("pan2023_fig33", numbers)["3.2-intra-rises"]
    assert found["verdict"] == Verdict.PARTLY
    assert "first to last: 17 of 18 comparisons hold" in found["evidence"]


def test_a_failed_run_with_perfect_accuracy_has_not_converged() -> None:
    numbers = EXPERIMENTS["pan2023_fig31"]()
    failed = each("rows", lambda row: {"converged": False, "accuracy": 1.0})(numbers)
    assert findings("pan2023_fig31", failed)["3.1-converges"]["verdict"] == NOT


def test_affine_alone_must_not_be_enough() -> None:
    numbers = EXPERIMENTS["pan2023_fig31"]()
    for row in numbers["rows"]:
        if row["norm"] == "affine":
            row.update(min_intra=1.0, max_inter=-1 / 3)
    assert findings("pan2023_fig31", numbers)["3.1-only-affine"]["verdict"] == NOT


def test_networks_without_cosines_are_left_out_and_counted() -> None:
    numbers = EXPERIMENTS["pan2023_fig33"]()
    for row in numbers["rows"]:
        if row["seed"] == 0 and row["weight_decay"] == 3e-3 and row["layer"] == 5:
            row.update(min_intra=None, max_inter=None, ncc_accuracy=None)
    found = findings("pan2023_fig33", numbers)
    for name in ("accuracy-rises", "intra-rises", "gap-rises", "inter-positive", "inter-unstable"):
        assert found[f"3.2-{name}"]["verdict"] == Verdict.REPRODUCED
        assert "undefined in some layer: 1 converged network" in found[f"3.2-{name}"]["evidence"]


@pytest.mark.parametrize("sentence", SENTENCES, ids=lambda sentence: sentence.name)
def test_the_verdict_follows_the_numbers(sentence: Sentence) -> None:
    numbers = EXPERIMENTS[sentence.experiment]()
    found = sentence.judge(numbers)
    assert found.verdict is Verdict.REPRODUCED, found.evidence
    spoiled = sentence.judge(SPOILED[sentence.name](numbers))
    assert spoiled.verdict in (NOT, Verdict.PARTLY), spoiled.evidence
    json.dumps([found.to_dict(), spoiled.to_dict()], allow_nan=False)


def test_every_sentence_has_one_name_and_a_counterexample() -> None:
    names = [sentence.name for sentence in SENTENCES]
    assert len(set(names)) == len(names)
    assert set(SPOILED) == set(names)


@pytest.mark.parametrize("sentence", SENTENCES, ids=lambda sentence: sentence.name)
def test_nothing_to_compare_is_open(sentence: Sentence) -> None:
    numbers = EXPERIMENTS[sentence.experiment]()
    nothing = numbers | {key: [] for key in ("rows", "runs", "depths", "intervals")}
    assert sentence.judge(nothing).verdict is Verdict.OPEN


def test_one_bad_seed_of_three_leaves_a_claim_partly_reproduced() -> None:
    numbers = EXPERIMENTS["pan2023_fig31"]()
    for row in numbers["rows"]:
        if row["seed"] == 2 and row["norm"] == "affine":
            row["min_intra"] = 0.0
    found = findings("pan2023_fig31", numbers)
    assert found["3.1-only-affine"]["verdict"] == Verdict.PARTLY
    assert found["3.1-affine-above-plain"]["verdict"] == Verdict.PARTLY


def test_runs_that_failed_do_not_count() -> None:
    numbers = EXPERIMENTS["pan2023_fig31"]()
    for row in numbers["rows"]:
        if row["weight_decay"] == 1e-2:
            row.update(converged=False, min_intra=None, max_inter=None, accuracy=None)
    found = findings("pan2023_fig31", numbers)
    assert found["3.1-grows"]["verdict"] == Verdict.REPRODUCED
    assert found["3.1-grows"]["numbers"]["comparisons"] == 15
    assert found["3.1-converges"]["verdict"] == Verdict.PARTLY
    assert found["3.1-converges"]["numbers"]["comparisons"] == 57


def test_very_few_exceptions_are_very_few() -> None:
    numbers = EXPERIMENTS["pan2023_fig33"]()
    for row in numbers["rows"]:
        if row["layer"] == 10:
            row["min_intra"] = 0.0
    assert findings("pan2023_fig33", numbers)["3.2-intra-rises"]["verdict"] == Verdict.REPRODUCED
    for row in numbers["rows"]:
        if row["layer"] in (4, 7, 12):
            row["min_intra"] = 0.0
    assert findings("pan2023_fig33", numbers)["3.2-intra-rises"]["verdict"] == Verdict.PARTLY


def test_a_conjecture_with_one_hard_data_set_is_partly_supported() -> None:
    numbers = EXPERIMENTS["pan2023_conjectures"]()
    numbers["intervals"][1].update(median=0.4, high=0.5)
    found = findings("pan2023_conjectures", numbers)["conjecture-3.1.1"]
    assert found["verdict"] == Verdict.PARTLY
    assert "conic, 6 layers: median 0.4" in found["evidence"]


def test_a_conjecture_without_some_places_or_seeds_is_at_most_partly_supported() -> None:
    numbers = EXPERIMENTS["pan2023_conjectures"]()
    del numbers["intervals"][1]
    numbers["intervals"][1].update(seeds=2)
    found = findings("pan2023_conjectures", numbers)
    assert found["conjecture-3.1.1"]["verdict"] == Verdict.PARTLY
    assert "conic, 6 layers: 3 of 3 seeds have no e" in found["conjecture-3.1.1"]["evidence"]
    assert found["conjecture-3.2.1"]["verdict"] == Verdict.PARTLY
    assert "teacher, 6 layers: 1 of 3 seeds have no e" in found["conjecture-3.2.1"]["evidence"]
    assert found["conjecture-3.2.2"]["verdict"] == Verdict.REPRODUCED


def test_one_seed_has_no_interval_and_says_so() -> None:
    numbers = EXPERIMENTS["pan2023_conjectures"]()
    numbers["config"]["seeds"] = [0]
    for row in numbers["intervals"]:
        row.update(seeds=1, low=None, high=None)
    found = findings("pan2023_conjectures", numbers)["conjecture-3.1.1"]
    assert found["verdict"] == Verdict.PARTLY
    assert "median 0.01, 1 seed, no interval" in found["evidence"]
