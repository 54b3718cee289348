"""Every experiment can be told to someone who has not read the paper."""

from nclab.claims.paper import describe_experiment
from nclab.claims.registry import claims, errata, experiments


def test_every_experiment_has_a_title_and_those_with_claims_say_what() -> None:
    told = {name: describe_experiment(module) for name, module in experiments().items()}
    assert set(told) == set(experiments())
    assert all(len(one["title"]) > 10 and "\n" not in one["title"] for one in told.values())
    judged = {claim.needs for claim in claims() if claim.needs}
    silent = {name for name in judged if not told[name]["says"] or not told[name]["source"]}
    assert silent <= {"tour"}
    assert all(one["says"] or one["about"] for one in told.values())


def test_every_erratum_has_its_correction() -> None:
    assert errata()
    assert all(one.where and one.printed and one.correct for one in errata())
