"""A folder of runs like that of a sweep over two settings and some seeds, without training."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nclab.records import open_run

NORMS, DECAYS, SEEDS = ("affine", "none"), (1e-4, 1e-3, 1e-2), (0, 1)
EPOCHS = (1, 2, 4, 8)


def layer(norm: str, decay: float, seed: int, epoch: int) -> dict[str, Any]:
    """Return numbers that follow from the settings, so that tests can compute what a page shows."""
    return {
        "layer": "fc",
        "num_classes": 4,
        "accuracy": 1.0 if norm == "affine" else 0.5,
        "loss": 1 / epoch + seed,
        "min_intra": (1 if norm == "affine" else -1) * epoch / 10 + seed * 0.02,
        "max_inter": 0.1 * seed - decay,
        "mean_inter": 0.0,
    }


def trained(root: Path, epochs: Sequence[int]) -> Path:
    """Write twelve finished runs, measured at these epochs."""
    for norm in NORMS:
        for decay in DECAYS:
            for seed in SEEDS:
                member = {"norm": norm, "weight_decay": decay, "seed": seed}
                config = {"member": member, "recipe": {"epochs": 8, "batch": 64}}
                with open_run(
                    root / f"{norm}-{decay}-{seed}", kind="fleet", config=config, seed=seed
                ) as run:
                    for epoch in epochs:
                        at = {"kind": "measurement", "step": 10 * epoch, "epoch": epoch}
                        run.append({**at, "layers": [layer(norm, decay, seed, epoch)]})
                    run.finish()
    return root


def sweep(root: Path) -> Path:
    """Write twelve finished runs, one dead run, and one run of a monitor with an alarm."""
    trained(root, EPOCHS)
    with open_run(root / "dead", kind="fleet", config={}) as run:
        gone = {**layer("none", 1.0, 0, 1), "mean_inter": 1.0, "max_inter": 1.0}
        run.append({"kind": "measurement", "step": 1, "epoch": 1, "layers": [gone]})
        run.finish()
    with open_run(root / "monitored", kind="monitor", config={}) as run:
        run.append(
            {"kind": "measurement", "step": 1, "epoch": 1, "layers": [layer("affine", 0, 0, 1)]}
        )
        run.append({"kind": "measurement", "step": 2, "epoch": 2, "layers": []})
        run.append(
            {
                "kind": "alarm",
                "step": 2,
                "epoch": 2.0,
                "name": "not finite",
                "layer": "fc",
                "classes": [0],
                "value": 45.0,
                "message": "45 features hold nan or infinity",
                "severe": True,
                "names": ["aeroplane"],
            }
        )
        run.finish()
    return root
