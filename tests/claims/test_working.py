"""Jobs of an experiment: values in the order of the jobs, a failed one in one line."""

from pathlib import Path

import pytest

from nclab.claims.paper import run_in_one_step, run_jobs
from nclab.engine import LOCAL, Job
from nclab.errors import NclabError
from nclab_papers.pan2023 import guarantees
from tests.claims.test_engine import Elsewhere


def test_values_come_in_the_order_of_the_jobs() -> None:
    jobs = [Job(f"root of {n}", run_in_one_step, (pow, n, 0.5)) for n in (9, 4, 1)]
    assert run_jobs(jobs, "roots", engine=LOCAL) == [3.0, 2.0, 1.0]


def test_a_job_that_failed_is_named() -> None:
    jobs = [Job(f"7 by {n}", run_in_one_step, (divmod, 7, n)) for n in (1, 0)]
    with pytest.raises(NclabError, match=r"7 by 0 failed: ZeroDivisionError"):
        run_jobs(jobs, "dividing", engine=LOCAL, workers=0)


def test_guarantees_work_where_the_engine_says(tmp_path: Path) -> None:
    engine = Elsewhere()
    config = guarantees.Config(relative_excess=(0.1,), weight_decays=(1e-3, 1e-2))
    with pytest.raises(NclabError, match="Asked"):
        guarantees.run(config, seeds=(3,), out=tmp_path, engine=engine)
    names = ["worst case at 0.1", "weight decay 0.001, seed 3", "weight decay 0.01, seed 3"]
    assert [job.name for job in engine.jobs] == names
