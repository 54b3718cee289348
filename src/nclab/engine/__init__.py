"""Work spread over the cores of this machine."""

from nclab.engine.local import Job, Outcome, Progress, cores, run_jobs

__all__ = ["Job", "Outcome", "Progress", "cores", "run_jobs"]
