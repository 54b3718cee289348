"""One folder a paper: its experiments, its claims with their judges, its errata."""
