"""Engines that run independent jobs: on this machine, or by `nclab.engine.ray` on a cluster."""

from nclab.engine.jobs import Engine, Job, JobResult, Progress, ReportStep
from nclab.engine.local import LOCAL, cores, run_jobs

__all__ = ["LOCAL", "Engine", "Job", "JobResult", "Progress", "ReportStep", "cores", "run_jobs"]
