"""Descriptions of experiments and errata, and the jobs of an experiment."""

from pathlib import Path

import pytest

from nclab.claims.paper import describe_experiment, run_in_one_step, run_jobs
from nclab.claims.registry import claims, errata, experiments
from nclab.engine import LOCAL, Job
from nclab.errors import NclabError
from nclab_papers.pan2023 import guarantees
from tests.claims.test_engine import RecordingEngine


def test_every_experiment_has_a_title_and_with_claims_a_statement() -> None:
    texts = {name: describe_experiment(module) for name, module in experiments().items()}
    assert set(texts) == set(experiments())
    assert all(len(text["title"]) > 10 and "\n" not in text["title"] for text in texts.values())
    judged = {claim.needs for claim in claims() if claim.needs}
    silent = {name for name in judged if not texts[name]["says"] or not texts[name]["source"]}
    assert silent <= {"tour"}
    assert all(text["says"] or text["about"] for text in texts.values())


def test_every_erratum_has_its_correction() -> None:
    assert errata()
    assert all(erratum.where and erratum.printed and erratum.correct for erratum in errata())


def test_values_come_in_the_order_of_the_jobs() -> None:
    jobs = [Job(f"root of {n}", run_in_one_step, (pow, n, 0.5)) for n in (9, 4, 1)]
    assert run_jobs(jobs, "roots", engine=LOCAL) == [3.0, 2.0, 1.0]


def test_the_error_names_the_failed_job() -> None:
    jobs = [Job(f"7 by {n}", run_in_one_step, (divmod, 7, n)) for n in (1, 0)]
    with pytest.raises(NclabError, match=r"7 by 0 failed: ZeroDivisionError"):
        run_jobs(jobs, "dividing", engine=LOCAL, workers=0)


def test_guarantees_run_on_the_given_engine(tmp_path: Path) -> None:
    engine = RecordingEngine()
    config = guarantees.Config(relative_excess=(0.1,), weight_decays=(1e-3, 1e-2))
    with pytest.raises(NclabError, match="Asked"):
        guarantees.run(config, seeds=(3,), out=tmp_path, engine=engine)
    names = ["worst case at 0.1", "weight decay 0.001, seed 3", "weight decay 0.01, seed 3"]
    assert [job.name for job in engine.jobs] == names
