"""RunningEstimate: the statistics of training batches as they come, a block of rows at a time."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]
from torch.nn.functional import linear

from nclab.errors import DataError
from nclab.measurement.collapse import Collapse
from nclab.measurement.gather import gather
from nclab.measurement.layer_stream import SCATTER_LIMIT, Head
from nclab.measurement.model import NOT_THE_LAST
from nclab.measurement.report import Report
from nclab.measurement.survey import Place, Survey
from nclab.monitor.tap import Reading, at_rest
from nclab.statistics import ClassMoments, LogitStatistics
from nclab.statistics.checks import HUGE, IGNORE_INDEX, as_labels

BLOCK_ROWS = 2048
"""Rows collected before they are added: one update of large blocks costs less than many."""
BLOCK_BYTES = 2**25
ONE_PASS = "a running estimate sees each feature once; use monitor.measure(loader)"
NOT_FINITE = "the classifier's weights are not finite"
REMARK = (
    "running estimate on training batches: the weights moved meanwhile, and dropout and batch "
    "norm were in training mode"
)


class LayerSums:
    """What has been seen of one place."""

    def __init__(self, place: Place, num_classes: int, scatter: bool, device: torch.device) -> None:
        self.place = place
        self.moments = ClassMoments(num_classes, place.dim, scatter=scatter, device=device)
        self.nonfinite = torch.zeros_like(self.moments.counts)
        """(C,) rows left out because they were not finite."""

    def add(self, rows: Tensor, labels: Tensor) -> None:
        """Add a block of rows; those with nan or infinity are counted and left out."""
        usable = finite_rows(rows)
        if usable is not None:
            out = labels[~usable]
            self.nonfinite += out[out >= 0].bincount(minlength=len(self.nonfinite))
            rows, labels = rows[usable], labels[usable]
        self.moments.add_checked(rows, labels)


class RunningEstimate:
    """Sums over the training batches since the last measurement."""

    def __init__(self, survey: Survey, *, scatter: bool | None) -> None:
        self.survey = survey
        self.scatter = scatter
        self.layers: list[LayerSums] = []
        self.logits: LogitStatistics | None = None
        self._waiting: list[Reading] = []
        self._rows = 0
        self._bytes = 0

    def add(self, reading: Reading) -> None:
        """Take what one forward pass has shown; the rows are ours to keep."""
        if reading.logits is None:
            reading = reading._replace(logits=self._logits(reading.rows))
        self._waiting.append(reading)
        self._rows += len(reading.labels)
        self._bytes += sum(rows.nbytes for rows in reading.rows)
        if self._rows >= BLOCK_ROWS or self._bytes >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Add the rows that wait to the sums."""
        if not self._waiting:
            return
        waiting, self._waiting, self._rows, self._bytes = self._waiting, [], 0, 0
        device = waiting[0].rows[0].device
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            self.start(device)
            here = self.layers[0].moments.device
            labels = torch.cat([reading.labels.to(here) for reading in waiting])
            labels = as_labels(
                labels,
                rows=len(labels),
                ignore_index=IGNORE_INDEX,
                num_classes=self.survey.num_classes,
            )
            for index, layer in enumerate(self.layers):
                layer.add(torch.cat([reading.rows[index] for reading in waiting]), labels)
            parts = [reading.logits for reading in waiting if reading.logits is not None]
            if self.logits is not None and len(parts) == len(waiting):
                self._add_logits(torch.cat(parts), labels)

    def clear(self) -> None:
        """Forget everything seen so far."""
        self.layers.clear()
        self.logits = None
        self._waiting.clear()
        self._rows = self._bytes = 0

    def report(self) -> Report:
        """The measurement of what was seen; layers that allow none are skipped with a reason."""
        skipped = dict(self.survey.skipped)
        head = self._head()
        measured = []
        for layer in self.layers:
            name = layer.place.layer.name
            present = int((layer.moments.counts > 0).sum())
            if present < 2:
                skipped[name] = f"it has finite features of {present} classes; 2 are needed"
                continue
            try:
                measured.append(self._collapse(layer, head))
            except (DataError, LinAlgError) as error:  # never a training's end
                skipped[name] = str(error)
        return Report(
            layers=tuple(measured),
            classifier=self.survey.classifier,
            samples=self.layers[-1].moments.total if self.layers else 0,
            skipped=skipped,
            remarks=(*self.survey.remarks, REMARK),
        )

    def nonfinite(self) -> dict[str, dict[int, int]]:
        """Layer -> class -> rows that were left out."""
        found = {}
        for layer in self.layers:
            classes = layer.nonfinite.nonzero().flatten().tolist()
            if classes:
                counts = {own: int(layer.nonfinite[own]) for own in classes}
                found[layer.place.layer.name] = counts
        return found

    def state_dict(self) -> dict[str, Any]:
        """Plain tensors by layer, from which `load_state_dict` goes on."""
        self.flush()
        state: dict[str, Any] = {"layers": {}}
        for layer in self.layers:
            own = {"moments": layer.moments.state_dict(), "nonfinite": layer.nonfinite.clone()}
            state["layers"][layer.place.layer.name] = own
        if self.logits is not None:
            state["logits"] = {name: getattr(self.logits, name).clone() for name in LOGIT_SUMS}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; the survey must have found the same layers."""
        self.clear()
        if not state["layers"]:
            return
        self.start(next(iter(state["layers"].values()))["nonfinite"].device)
        names = [layer.place.layer.name for layer in self.layers]
        if names != list(state["layers"]):
            raise DataError(
                f"Expected the state of layers {', '.join(names)}, got "
                f"{', '.join(state['layers'])}. Load it into a monitor of the same model."
            )
        for layer, own in zip(self.layers, state["layers"].values(), strict=True):
            layer.moments = ClassMoments.from_state_dict(own["moments"])
            layer.nonfinite = own["nonfinite"].clone()
        if self.logits is not None:
            for name in LOGIT_SUMS:
                setattr(self.logits, name, state["logits"][name].clone())

    def start(self, device: torch.device | None = None) -> None:
        """Open sums for every place, if there are none yet; by default where the model is."""
        if self.layers:
            return
        parameter = next(self.survey.model.parameters(), None)
        if device is None:
            device = torch.device("cpu") if parameter is None else parameter.device
        classes = self.survey.num_classes
        for place in self.survey.places:
            scatter = place.dim <= SCATTER_LIMIT if self.scatter is None else self.scatter
            self.layers.append(LayerSums(place, classes, scatter, device))
        if any(place.is_last for place in self.survey.places):
            self.logits = LogitStatistics(classes, device=self.layers[0].moments.device)

    def _logits(self, rows: list[Tensor]) -> Tensor | None:
        """Logits of pooled rows, where the classifier itself returned something else."""
        assert self.survey.found is not None
        module = self.survey.found.call.module
        for place, own in zip(self.survey.places, rows, strict=True):
            if place.is_last:
                with torch.no_grad(), at_rest(self.survey.model):
                    weight, bias = module.weight, getattr(module, "bias", None)
                    assert isinstance(weight, Tensor)
                    offset = bias.double() if isinstance(bias, Tensor) else None
                    return linear(own.double(), weight.double(), offset)
        return None

    def _add_logits(self, logits: Tensor, labels: Tensor) -> None:
        assert self.logits is not None
        usable = finite_rows(logits)
        if usable is not None:
            logits, labels = logits[usable], labels[usable]
        self.logits.update(logits, labels)

    def _head(self) -> Head | None:
        with torch.no_grad(), at_rest(self.survey.model):
            try:
                return self.survey.head()
            except DataError:
                return None

    def _collapse(self, layer: LayerSums, head: Head | None) -> Collapse:
        device = layer.moments.device
        weight = bias = None
        reasons = {"second look": ONE_PASS}
        if not layer.moments.has_scatter:
            reasons["scatter"] = "the preset or the dimension leaves the d x d scatter out"
        if layer.place.is_last and head is not None:
            weight = head.weight.to(device)
            bias = None if head.bias is None else head.bias.to(device)
        else:
            reasons["weight"] = NOT_FINITE if layer.place.is_last else NOT_THE_LAST
        counted = self.logits is not None and torch.equal(self.logits.counts, layer.moments.counts)
        if layer.place.is_last and not counted:
            reasons["weight"] = "some logits are not finite"
        collapse = gather(
            layer.moments,
            weight=weight,
            bias=bias,
            logits=self.logits if layer.place.is_last and counted else None,
            layer=layer.place.layer.name,
            reasons=reasons,
        )
        left_out = int(layer.nonfinite.sum())
        if not left_out:
            return collapse
        warning = f"Left out {left_out} feature vectors with nan or infinity."
        return replace(collapse, warnings=(warning, *collapse.warnings))


LOGIT_SUMS = ("counts", "correct", "loss_sums", "margins")


def finite_rows(rows: Tensor) -> Tensor | None:
    """(B,) which rows can be used; None, after one cheap sum, if all can.

    >>> finite_rows(torch.tensor([[1.0, 2.0], [1.0, torch.nan]])).tolist()
    [True, False]
    """
    total = rows.sum(dtype=torch.float32)
    if bool(torch.isfinite(total)) and rows.dtype != torch.float64:
        return None
    usable = torch.isfinite(rows).all(1)
    if rows.dtype == torch.float64:
        usable &= (rows.abs() <= HUGE).all(1)
    return None if bool(usable.all()) else usable
