"""Shared by all tests: one thread, so that sums are reproducible and machines stay usable."""

import torch

torch.set_num_threads(1)
