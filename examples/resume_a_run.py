"""Stop a recorded training run halfway and resume it with the same result."""

import tempfile
from pathlib import Path

import torch

from nclab.records import open_run, read_run


def train(folder: Path, *, stop_at: int | None = None) -> None:
    """Do fifty noisy gradient steps with a checkpoint every ten steps."""
    with open_run(folder, kind="example", config={"rate": 0.1, "steps": 50}, seed=0) as run:
        generator = torch.Generator().manual_seed(0)
        weight, first = torch.ones(3), 1
        checkpoint = run.resume_latest()
        if checkpoint is not None:
            weight, first = checkpoint.tensors["weight"], checkpoint.step + 1
            generator.set_state(checkpoint.tensors["generator"])
        for step in range(first, 51):
            if step == stop_at:
                return  # or kill -9, or a power cut
            weight = weight - 0.1 * (weight + torch.randn(3, generator=generator))
            run.append({"kind": "measurement", "step": step, "norm": weight.norm()})
            run.beat(step=step, total=50)
            if step % 10 == 0:
                run.checkpoint(step, {"weight": weight, "generator": generator.get_state()})
        run.finish(norm=weight.norm())


with tempfile.TemporaryDirectory() as name:
    once, twice = Path(name, "once"), Path(name, "twice")
    train(once)
    train(twice, stop_at=34)
    half = read_run(twice)
    print(f"stopped:  {half.state}, {half.progress:.0%}, {len(half.records)} records")
    train(twice)
    whole = read_run(twice)
    print(f"resumed:  {whole.state}, {len(whole.of_kind('measurement'))} measurements")
    same = (once / "journal.jsonl").read_bytes() == (twice / "journal.jsonl").read_bytes()
    print(f"the same journal, byte for byte: {same}")
    assert same
