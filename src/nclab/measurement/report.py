"""Report: the measurements of the layers of a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nclab.errors import DataError
from nclab.figures.measured import layer_picture, layers_picture
from nclab.measurement.collapse import Collapse
from nclab.measurement.display import Displayed
from nclab.metrics.nc4_nearest_center import effective_depth
from nclab.text import as_frame
from nclab.theory.certificates.certificate import Certificate

if TYPE_CHECKING:
    from pandas import DataFrame

    from nclab.figures.picture import Picture


@dataclass(frozen=True, eq=False, repr=False)
class Report(Displayed):
    """The measurements of a model's layers, in the order in which the network computes them.

    >>> import nclab, torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    >>> report = nclab.measure(net, [(torch.randn(20, 2), torch.arange(20) % 2)], layers="all")
    >>> [row["layer"] for row in report.to_dicts()], report.classifier
    (['1'], '2')
    """

    layers: tuple[Collapse, ...]
    classifier: str
    """Name of the module used as the classifier; empty if only features were measured."""
    samples: int
    skipped: Mapping[str, str]
    """Layer -> why it was not measured."""
    remarks: tuple[str, ...]
    """Remarks on how the classifier was found."""
    split: str | None = None
    """Name of the data: train, test, ..."""
    test: "Report | None" = None
    """Report on other data of the same model, compared with the class means of this report."""

    @property
    def last(self) -> Collapse:
        """The last measured layer: the input of the classifier, unless layers were named."""
        if not self.layers:  # a monitor that received only nan, or only one class
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
        """Return the number of the first layer whose nearest-class-mean error is at most epsilon.

        Measured layers are counted from 1; measure with `layers="all"`. pan2023, Def. 3.2.2.
        """
        accuracies = self._ncc_accuracies()
        if len(accuracies) < len(self.layers):
            raise DataError("Expected nearest-class-centre accuracies. Measure with a second pass.")
        return effective_depth(accuracies, epsilon=epsilon)

    def _ncc_accuracies(self) -> list[float]:
        """Return the known accuracies of nearest class means, layer by layer."""
        accuracies = (collapse.nc4_ncc_accuracy for collapse in self.layers)
        return [accuracy for accuracy in accuracies if accuracy is not None]

    def certificate(self, delta: float | None = None) -> Certificate:
        """Return what the loss guarantees about the features that the classifier reads."""
        with_loss = [collapse for collapse in self.layers if collapse.loss is not None]
        return (with_loss[-1] if with_loss else self.last).certificate(delta)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one flat row of scalars per layer.

        With test data, the rows with `split` "train" come before those with `split` "test".
        """
        return [collapse.to_row() for collapse in self._all_layers()]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values, with `to_dict` of every layer.

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
        """Return the rows of `to_dicts` as a pandas table."""
        return as_frame(self.to_dicts())

    def _all_layers(self) -> tuple[Collapse, ...]:
        """Return the layers of this report, followed by those of the test data."""
        return self.layers if self.test is None else (*self.layers, *self.test.layers)

    def _table_rows(self) -> list[dict[str, Any]]:
        return [row for collapse in self._all_layers() for row in collapse._table_rows()]

    def summary(self) -> list[str]:
        lines = []
        for report in filter(None, (self, self.test)):
            lines += report.layers[-1].summary() if report.layers else []
        name = f"classifier: {self.classifier}" if self.classifier else "features only"
        samples = f"{self.samples} samples"
        if self.test is not None:
            samples = (
                f"{self.samples} {self.split} and {self.test.samples} {self.test.split} samples"
            )
        lines.append(f"{name} · {samples}")
        accuracies, count = self._ncc_accuracies(), len(self.layers)
        if len(accuracies) == count > 1:
            depth = effective_depth([*accuracies, 1.0])  # count + 1 if no layer is good enough
            not_reached = "" if depth <= count else ", which no layer reaches"
            lines.append(
                f"effective depth: {min(depth, count)} of {count} layers "
                f"(nearest-class-centre error ≤ 0.01{not_reached})"
            )
        lines.extend(f"! {remark}" for remark in self.remarks)
        lines.extend(f"– {name} not measured: {why}" for name, why in self.skipped.items())
        return lines

    def _picture(self) -> "Picture":
        if len(self.layers) < 2:
            test = None if self.test is None else self.test.last._picture_row()
            return layer_picture(self.last._picture_row(), other=test)
        rows = self._table_rows()
        return layers_picture(rows)
