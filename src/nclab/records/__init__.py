"""Runs on disk: manifest, journal, checkpoints; written so that nothing is lost."""
