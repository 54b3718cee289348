"""The networks of the thesis's chapter 3 in two sizes, trained once and shared by experiments."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nclab.claims.evidence import RecordedNetworks
from nclab.engine import LOCAL, Engine
from nclab.records import read_run
from nclab.records.schema import MEASUREMENT, layers_of
from nclab.training.data.artificial import ConicHull, Teacher
from nclab.training.fleet import Recipe
from nclab.training.models.mlp import Norm, Shape
from nclab.training.sweep import SweepConfig
from nclab.training.sweep.plan import plan_sweep
from nclab.training.sweep.rows import rows_of
from nclab.training.sweep.train import train_plan

Data = Literal["teacher", "conic"]
Row = dict[str, Any]

DECAYS = (1e-4, 3e-4, 5e-4, 1e-3, 3e-3, 7e-3, 1e-2)
"""Of the thesis's 6 layers."""
DEEP_DECAYS = (1e-4, 3e-4, 5e-4, 1e-3, 3e-3, 5e-3, 1e-2)
"""Of the thesis's 15 layers."""


@dataclass(frozen=True)
class Networks:
    """What all networks of an experiment share; the defaults are the thesis's.

    Source: pan2023, Sec. 3.1.1
    """

    inputs: int = 16
    """Dimension of the samples; not stated, taken from the author's published code."""
    classes: int = 4
    """Likewise."""
    samples: int = 10_000
    width: int = 300
    """Of the hidden layers; likewise."""
    epochs: int = 300
    batch: int = 128
    moments: int = 6
    """About so many epochs are measured, the last included."""
    workers: int | None = None
    """Processes, one a core by default; 0 trains in this one. The numbers do not depend on it."""

    def sweeps(
        self,
        *,
        seeds: Sequence[int],
        layers: int,
        norms: tuple[Norm, ...] = ("affine",),
        weight_decays: tuple[float, ...] = DECAYS,
        data: Data = "teacher",
        teacher_depth: int = 3,
    ) -> list[SweepConfig]:
        """What to train, one sweep a seed, which draws data, first weights and order of batches."""
        shape = Shape(inputs=self.inputs, classes=self.classes, layers=layers, width=self.width)
        return [
            SweepConfig(
                data=self._source(data, teacher_depth, seed),
                shape=shape,
                norms=norms,
                weight_decays=weight_decays,
                seeds=(seed,),
                recipe=Recipe(epochs=self.epochs, batch=self.batch),
                moments=self.moments,
                layers="all",
            )
            for seed in seeds
        ]

    def train(
        self, out: Path, sweeps: Sequence[SweepConfig], *, engine: Engine = LOCAL
    ) -> list[list[Row]]:
        """Train what is not in `out/fleet` yet; for every sweep a row for each of its networks.

        All sweeps are trained together, so that no core waits for the last network of each.
        """
        plan = plan_sweep(sweeps, out / KEPT.folder)
        train_plan(plan, workers=self.workers, engine=engine)
        return [
            rows_of(plan.out, [run.name for run in fleet.runs], threshold=fleet.config.converged)
            for fleet in plan.fleets
        ]

    def _source(self, data: Data, teacher_depth: int, seed: int) -> Teacher | ConicHull:
        if data == "conic":
            return ConicHull(
                inputs=self.inputs, classes=self.classes, samples=self.samples, seed=seed
            )
        return Teacher(
            inputs=self.inputs,
            classes=self.classes,
            samples=self.samples,
            depth=teacher_depth,
            seed=seed,
        )


QUICK = Networks(samples=2448, width=75, epochs=150, moments=10)
"""For the thesis's depths and weight decays: width and samples divided by four, epochs by two, for
the cost. Batches are the thesis's, 128 and in the end 16 (hence not 2,500 samples): their absolute
sizes are the noise in the running averages of batch norm."""
PAPER = Networks()
"""The thesis's."""
KEPT = RecordedNetworks("fleet", ("min_intra", "max_inter", "nc4_ncc_accuracy"))
"""What the experiments read of every layer of a network; of the last one they read its end."""


def last_layers(out: Path, row: Row) -> list[dict[str, Any]]:
    """The measured layers of a network at its end, in order; empty if it never got there."""
    return list(layers_of(read_run(out / KEPT.folder / row["run"]).last(MEASUREMENT)))
