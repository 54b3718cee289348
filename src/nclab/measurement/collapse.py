"""Collapse: the measurement of one layer at one moment."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import Tensor

from nclab import metrics
from nclab.errors import DataError, NclabError
from nclab.figures.measured import layer_picture
from nclab.measurement.display import Displayed
from nclab.measurement.results import DECILES, PAIRS_SHOWN, Strata, strata
from nclab.measurement.theory import LayerTheory, OptimumDistance
from nclab.metrics.catalogue import every_metric
from nclab.metrics.target_distance import MEANINGS
from nclab.text import as_frame

if TYPE_CHECKING:
    from pandas import DataFrame

    from nclab.figures.picture import Picture

CERTIFIED = 1000
"""Largest number of classes for which `to_dict` includes a certificate. It takes milliseconds, and
up to a tenth of a second for 1000 classes."""
CLASS_ARRAYS = ("intra_cosine", "nc3_alignment", "class_loss", "class_alpha", "class_beta")


@dataclass(frozen=True, eq=False, repr=False)
class Collapse(LayerTheory, Displayed):
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
        """Signal-to-noise ratios of the modes of the class means."""
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
        groups if there are 20 or more classes of very different sizes.

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
        return self._row(dict.fromkeys(MEANINGS) if distances is None else distances.values())

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

        If intervals and shuffled labels were measured, both ends of the interval and the value
        under shuffled labels are columns. `notes` has the reason for each missing value.

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
        """Return JSON values of groups of classes, optimum, intervals and shuffled labels."""
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
        """Return the certificate for records, or the reason why it is missing."""
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
        """Return the row for pictures, with centred cosines if the features are non-negative."""
        row = self.to_dict()
        centred = self.non_negative and self.second_pass is not None
        if centred and row["inter_cosine"] is not None:
            return {**row, "inter_cosine": self.centred_inter_cosine.tolist(), "centred": True}
        return row


def _finite(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None


def _finite_values(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: _finite(value) for name, value in values.items()}


def _finite_list(values: Tensor | None) -> list[float | None] | None:
    return None if values is None else [_finite(value) for value in values.double().tolist()]
