"""Report: what `nclab.measure` found in every layer of a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nclab.errors import DataError
from nclab.frame import as_frame
from nclab.measurement.collapse import Collapse
from nclab.measurement.page import Shown
from nclab.metrics.nc4_nearest_center import effective_depth
from nclab.theory.certificates.certificate import Certificate

if TYPE_CHECKING:
    from pandas import DataFrame

    from nclab.figures.picture import Picture


@dataclass(frozen=True, eq=False, repr=False)
class Report(Shown):
    """The measurements of a model's layers, in the order in which the network computes them.

    >>> import nclab, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    >>> report = nclab.measure(net, [(torch.randn(20, 2), torch.arange(20) % 2)], layers="all")
    >>> [row["layer"] for row in report.to_dicts()], report.classifier
    (['1'], '2')
    """

    layers: tuple[Collapse, ...]
    classifier: str
    """Name of the module taken as the classifier; empty where only features were measured."""
    samples: int
    skipped: Mapping[str, str]
    """Layer -> why it was not measured."""
    remarks: tuple[str, ...]
    """How the classifier was found, where that needs saying."""
    split: str | None = None
    """What the data are called: train, test, ..."""
    test: "Report | None" = None
    """Other data of the same model, compared with the class means of these."""

    @property
    def last(self) -> Collapse:
        """The last measured layer: what the classifier reads, unless layers were named."""
        if not self.layers:  # a monitor that saw only nan, or only one class
            why = "; ".join(f"{name}: {reason}" for name, reason in self.skipped.items())
            raise DataError(f"Expected a layer that could be measured, got none ({why}).")
        return self.layers[-1]

    def __getitem__(self, layer: str | int) -> Collapse:
        if isinstance(layer, int):
            return self.layers[layer]
        for collapse in self.layers:
            if collapse.layer == layer:
                return collapse
        names = ", ".join(str(collapse.layer) for collapse in self.layers)
        raise DataError(f"Expected one of the measured layers {names}, got {layer!r}.")

    def effective_depth(self, epsilon: float = 0.01) -> int:
        """The first measured layer, from 1, at which nearest class centres err at most epsilon.

        pan2023, Def. 3.2.2; meaningful for `layers="all"`.
        """
        accuracies = [collapse.nc4_ncc_accuracy for collapse in self.layers]
        known = [value for value in accuracies if value is not None]
        if len(known) < len(accuracies):
            raise DataError("Expected nearest-class-centre accuracies. Measure with a second pass.")
        return effective_depth(known, epsilon=epsilon)

    def certificate(self, delta: float | None = None) -> Certificate:
        """What the loss guarantees about the features that the classifier reads."""
        read = [collapse for collapse in self.layers if collapse.loss is not None]
        return (read[-1] if read else self.last).certificate(delta)

    def to_dicts(self) -> list[dict[str, Any]]:
        """One flat dict of scalars per layer; `to_frame()` has the same rows.

        With test data, first those of `train` and then those of `test`, told apart by `split`.
        """
        return [collapse.to_row() for collapse in self._shown()]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values: `to_dict` of every layer, and what stands beside them.

        >>> import json, nclab, torch
        >>> net = torch.nn.Linear(2, 2)
        >>> report = nclab.measure(net, [(torch.randn(20, 2), torch.arange(20) % 2)])
        >>> sorted(json.loads(json.dumps(report.to_dict())))
        ['classifier', 'layers', 'remarks', 'samples', 'skipped', 'split', 'test']
        """
        return {
            "classifier": self.classifier,
            "samples": self.samples,
            "split": self.split,
            "layers": [collapse.to_dict() for collapse in self.layers],
            "skipped": dict(self.skipped),
            "remarks": list(self.remarks),
            "test": None if self.test is None else self.test.to_dict(),
        }

    def to_frame(self) -> "DataFrame":
        """The rows of `to_dicts` as a pandas table."""
        return as_frame(self.to_dicts())

    def _shown(self) -> tuple[Collapse, ...]:
        return self.layers if self.test is None else (*self.layers, *self.test.layers)

    def _picture(self) -> "Picture":
        from nclab.figures.measured import layer_picture, layers_picture

        if len(self.layers) < 2:
            beside = None if self.test is None else self.test.last._seen()
            return layer_picture(self.last._seen(), beside=beside)
        return layers_picture(self.table_rows())

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        from nclab.measurement import table

        body = table.layers if len(self.layers) > 1 else table.side_by_side
        return Group(body(self.table_rows()), *(Text(line) for line in self.lines()))

    def table_rows(self) -> list[dict[str, Any]]:
        """What the tables show of every layer."""
        return [row for collapse in self._shown() for row in collapse.table_rows()]

    def lines(self) -> list[str]:
        """What is said below the table."""
        head = f"classifier: {self.classifier}" if self.classifier else "features only"
        beside = "" if self.test is None else f" and {self.test.samples} {self.test.split}"
        lines = [f"{head} · {self.samples}{beside and f' {self.split}'}{beside} samples"]
        accuracies = [collapse.nc4_ncc_accuracy for collapse in self.layers]
        known = [value for value in accuracies if value is not None]
        count = len(self.layers)
        if len(known) == count > 1:
            depth = effective_depth([*known, 1.0])  # beyond the last where no layer is good enough
            end = "" if depth <= count else ", which no layer reaches"
            lines.append(
                f"effective depth: {min(depth, count)} of {count} layers "
                f"(nearest-class-centre error ≤ 0.01{end})"
            )
        for part in filter(None, (self, self.test)):
            lines += part.layers[-1].lines() if part.layers else []
        lines.extend(f"! {remark}" for remark in self.remarks)
        lines.extend(f"– {name} not measured: {why}" for name, why in self.skipped.items())
        return lines

    def _repr_html_(self) -> str:
        return self._html_table(self.lines())
