"""A paper: a package with a PAPER; its modules are experiments and claims."""

from nclab.claims.paper import Paper

PAPER = Paper("example2026", "On the Spread of Noisy Classes", "A. Author", 2026)
