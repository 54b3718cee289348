"""Checks of the statements of pan2023: every function returns both sides of one inequality."""
