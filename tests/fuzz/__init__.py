"""Campaigns against hostile and damaged input: `python -m tests.fuzz`, `make fuzz`."""
