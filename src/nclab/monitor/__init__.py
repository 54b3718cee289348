"""Collapse watched in a training loop of any kind."""
