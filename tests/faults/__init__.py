"""System calls that fail: the n-th one, for all n; `python -m tests.faults.program FOLDER`."""
