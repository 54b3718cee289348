"""Measure features in many files as if they were one array."""

import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file

import nclab

CLASSES, DIM = 5, 16


def main() -> None:
    """Write eight shards and measure them on all cores of this machine."""
    generator = torch.Generator().manual_seed(0)
    means = 3 * torch.randn(CLASSES, DIM, generator=generator)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(8):
            labels = torch.randint(CLASSES, (500,), generator=generator)
            features = means[labels] + torch.randn(500, DIM, generator=generator)
            part = {"features": features, "labels": labels}
            save_file(part, Path(folder) / f"part-{number}.safetensors")
        print(nclab.measure_shards(folder, weight=means))


if __name__ == "__main__":  # workers are processes: they import this file
    main()
