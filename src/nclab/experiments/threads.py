"""How many threads an experiment uses."""

from nclab.threads import one_thread

__all__ = ["one_thread"]
