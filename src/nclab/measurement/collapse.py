"""Collapse: the measurement of one layer. Report: the measurements of the layers of a model."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import Tensor

from nclab import metrics
from nclab.errors import DataError, NclabError
from nclab.figures.measured import layer_picture, layers_picture
from nclab.measurement.display import Displayed
from nclab.measurement.results import (
    DECILES,
    PAIRS_SHOWN,
    LayerResults,
    OptimumDistance,
    Strata,
    strata,
)
from nclab.metrics.catalogue import TARGET_MEANINGS, every_metric
from nclab.metrics.nc4_nearest_center import effective_depth
from nclab.text import as_frame
from nclab.theory.certificates.certificate import Certificate

if TYPE_CHECKING:
    from pandas import DataFrame

    from nclab.figures.picture import Picture

CERTIFIED = 1000
"""Largest number of classes for which `to_dict` includes a certificate. Computing the certificate
takes milliseconds, and up to a tenth of a second for 1000 classes."""
CLASS_ARRAYS = ("intra_cosine", "nc3_alignment", "class_loss", "class_alpha", "class_beta")


@dataclass(frozen=True, eq=False, repr=False)
class Collapse(LayerResults, Displayed):
    """A measurement of one layer: scalars, per-class arrays, and reasons for missing values.

    A scalar that could not be measured is None, and `notes` gives the reason under its name.
    Per-class arrays follow the order of `classes`.

    >>> import nclab
    >>> collapse = nclab.measure_features([[1.0, 0.0], [0.0, 1.0]], [0, 1])
    >>> collapse.max_inter, collapse.loss, collapse.notes["loss"]
    (0.0, None, 'no classifier weights were given')
    """

    @cached_property
    def inter_cosine(self) -> Tensor:
        """(C, C) inter-class cosines, with intra-class cosines on the diagonal."""
        return metrics.inter_cosine(self.moments)

    @cached_property
    def centred_inter_cosine(self) -> Tensor:
        """(C, C) inter-class cosines of features centred by the global mean."""
        if self.second_pass is None:
            raise DataError(f"Expected a second pass, got none: {self.notes['centred_max_inter']}")
        return metrics.inter_cosine(self.second_pass)

    @cached_property
    def cdnv_pairs(self) -> Tensor:
        """(C, C) class-distance normalised variances."""
        return metrics.cdnv_pairs(self.moments)

    @cached_property
    def snr_spectrum(self) -> Tensor:
        """Signal-to-noise ratios of the class means, one for each mode (singular value)."""
        return metrics.snr_spectrum(self.moments)

    @property
    def verdict(self) -> str:
        """Summary in plain words: whether the layer is collapsed, and what stands out.

        >>> import nclab
        >>> features = [[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, 0.1]]
        >>> print(nclab.measure_features(features, [0, 0, 1, 1]).verdict)
        Collapsed: the spread within classes is 0.0025 times the spread between them \
(0 = collapsed; random labels would give 2). The class means form a simplex ETF: their cosines \
differ from those of a simplex by 0 on average (0 = simplex).
        """
        return self.sentences[0]

    def strata(self, groups: int = DECILES) -> Strata:
        """Return groups of classes by frequency, each with its spread, accuracies, loss and norms.

        Every group has about the same number of samples. Tables, pages and `to_dict` show ten
        groups if there are 20 or more classes of very different sizes. A spread is None if every
        class of the group has one sample.

        >>> import nclab
        >>> features, labels = [[1.0, 0.0], [3.0, 0.0], [0.0, 1.0]], [0, 0, 1]
        >>> groups = nclab.measure_features(features, labels).strata(2)
        >>> [(group.most, group.within) for group in groups]
        [(2, 1.6), (1, None)]
        """
        return strata(self, groups)

    def scalars(self) -> dict[str, float | None]:
        """Return the scalar metrics by name, in the order of the tables."""
        return dict(self.values)

    def to_row(self) -> dict[str, Any]:
        """Return one flat row for a DataFrame: the layer, its sizes and every scalar.

        Includes the distances to the optimum for these class counts and norms.
        """
        distances = self.optimum_distance
        return self._row(
            dict.fromkeys(TARGET_MEANINGS) if distances is None else distances.values()
        )

    def _row(self, distances: Mapping[str, float | None]) -> dict[str, Any]:
        return {
            **({} if self.split is None else {"split": self.split}),
            "layer": self.layer,
            "dim": self.dim,
            "samples": self.samples,
            "num_classes": self.num_classes,
            **self.values,
            **distances,
            "zero_features": self.zero_features,
            "ignored": self.ignored,
            "bias_norm": self.bias_norm,
        }

    def to_frame(self) -> "DataFrame":
        """Return a pandas table with a row per metric: value, value at collapse and meaning.

        If intervals and shuffled labels were measured, the ends of the interval and the value under
        shuffled labels are further columns. `notes` has the reason for each missing value.

        >>> import nclab
        >>> frame = nclab.measure_features([[1.0, 0.0], [0.0, 1.0]], [0, 1]).to_frame()
        >>> frame.loc["max_inter", ["value", "at_collapse"]].tolist()
        [0.0, -1.0]
        """
        rows = []
        for name, value in self.values.items():
            metric = every_metric()[name]
            ideal = None if metric.ideal is None else metric.ideal(self.num_classes)
            row = {"value": value, "at_collapse": ideal}
            if self.intervals is not None:
                interval = self.intervals.get(name)
                row |= {"low": interval and interval.low, "high": interval and interval.high}
            if self.shuffled_labels is not None:
                row["labels_shuffled"] = self.shuffled_labels.get(name)
            rows.append({**row, "meaning": metric.meaning})
        return as_frame(rows, index=list(self.values))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values; a number that is not finite becomes None."""
        pairs = self.inter_cosine.tolist() if self.num_classes <= PAIRS_SHOWN else None
        notes = dict(self.notes)
        if pairs is None:
            notes["inter_cosine"] = f"more than {PAIRS_SHOWN} classes; use .inter_cosine"
        certificate, why_no_certificate = self._recorded_certificate()
        if why_no_certificate:
            notes["certificate"] = why_no_certificate
        optimum, why_no_optimum = self._optimum_distance
        if why_no_optimum:
            notes["target_distance"] = why_no_optimum
        closest_pairs = []
        for first, second, cosine in self.closest_pairs:
            pair: dict[str, Any] = {"classes": [first, second], "cosine": cosine}
            if self.class_names is not None:
                pair["names"] = [self.name_of(first), self.name_of(second)]
            closest_pairs.append(pair)
        return {
            **self.to_row(),
            **_finite_values(self.values),
            "max_inter_pair": list(self.max_inter_pair),
            "closest_pairs": closest_pairs,
            "classes": list(self.classes),
            **({} if self.class_names is None else {"class_names": list(self.class_names)}),
            **{name: _finite_list(getattr(self, name)) for name in CLASS_ARRAYS},
            "class_variance": _finite_list(self.variances),
            "class_counts": self.counts.tolist(),
            "inter_cosine": pairs,
            "certificate": certificate,
            "notes": notes,
            "warnings": list(self.warnings),
            "verdict": self.verdict,
            **self._optional_parts(optimum),
        }

    def _optional_parts(self, optimum: OptimumDistance | None = None) -> dict[str, Any]:
        """Return the optional parts of `to_dict` that were measured, such as intervals."""
        parts: dict[str, Any] = {}
        if self.frequency_groups is not None:
            parts["strata"] = self.frequency_groups.to_dicts()
        if optimum is not None:
            geometry, weight_decay = optimum.distance.geometry, list(optimum.weight_decay)
            parts["own_target"] = {"geometry": geometry, "weight_decay": weight_decay}
        if self.intervals is not None:
            parts["intervals"] = {name: list(ends) for name, ends in self.intervals.items()}
            parts["no_interval"] = dict(self.no_interval)
        if self.shuffled_labels is not None:
            parts["shuffled_labels"] = _finite_values(self.shuffled_labels)
        return parts

    def _recorded_certificate(self) -> tuple[dict[str, Any] | None, str]:
        """Return the certificate as it is recorded, or None with the reason why it is missing."""
        if self.balanced_loss is None:
            return None, ""
        if self.num_classes > CERTIFIED:
            return None, f"more than {CERTIFIED} classes; use .certificate()"
        try:
            return self.certificate(pairs=False).to_record(), ""
        except NclabError as error:
            return None, str(error)

    def _table_rows(self) -> list[dict[str, Any]]:
        row = {**self._row({}), "notes": dict(self.notes), "warnings": list(self.warnings)}
        return [{**row, **self._optional_parts(), "non_negative": self.non_negative}]

    def summary(self) -> list[str]:
        prefix = f"{self.split}: " if self.split else ""
        return [f"{prefix}{sentence}" for sentence in self.sentences]

    def _picture(self) -> "Picture":
        return layer_picture(self._picture_row())

    def _picture_row(self) -> dict[str, Any]:
        """Return `to_dict` for a picture; its cosines are centred if features are non-negative."""
        row = self.to_dict()
        centred = self.non_negative and self.second_pass is not None
        if centred and row["inter_cosine"] is not None:
            return {**row, "inter_cosine": self.centred_inter_cosine.tolist(), "centred": True}
        return row


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
        """Return the nearest-class-mean accuracy of every layer where it was measured."""
        accuracies = (collapse.nc4_ncc_accuracy for collapse in self.layers)
        return [accuracy for accuracy in accuracies if accuracy is not None]

    def certificate(self, delta: float | None = None) -> Certificate:
        """Return the certificate: what the loss guarantees about the classifier's features."""
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


def _finite(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None


def _finite_values(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: _finite(value) for name, value in values.items()}


def _finite_list(values: Tensor | None) -> list[float | None] | None:
    return None if values is None else [_finite(value) for value in values.double().tolist()]
