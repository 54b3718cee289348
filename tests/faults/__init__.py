"""Failing system calls: `python -m tests.faults.program FOLDER` tries all of them."""
