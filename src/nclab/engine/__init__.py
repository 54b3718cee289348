"""Independent jobs on the cores of this machine, or on a Ray cluster by `nclab.engine.ray`."""

from nclab.engine.jobs import Engine, Job, Outcome, Progress, Report
from nclab.engine.local import LOCAL, cores, run_jobs

__all__ = ["LOCAL", "Engine", "Job", "Outcome", "Progress", "Report", "cores", "run_jobs"]
