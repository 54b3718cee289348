"""Independent jobs on the cores of this machine, or on a Ray cluster by `nclab.engine.ray`."""

from nclab.engine.jobs import Engine, Job, JobResult, Progress, ReportStep
from nclab.engine.local import LOCAL, cores, run_jobs

__all__ = ["LOCAL", "Engine", "Job", "JobResult", "Progress", "ReportStep", "cores", "run_jobs"]
