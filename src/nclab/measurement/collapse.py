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
from nclab.measurement import theory
from nclab.measurement.diagnosis import verdict
from nclab.measurement.display import Displayed, html_table, metric_table, with_summary
from nclab.measurement.results import DECILES, LayerResults, Share, Strata, shows_strata, strata
from nclab.measurement.theory import OptimumDistance
from nclab.metrics.catalogue import every_metric
from nclab.metrics.target_distance import MEANINGS
from nclab.text import as_frame, number
from nclab.theory.certificates.certificate import Certificate
from nclab.theory.targets.distance import TargetDistance
from nclab.theory.targets.result import Target

if TYPE_CHECKING:
    from pandas import DataFrame

    from nclab.figures.picture import Picture

PAIRS_SHOWN = 100
"""Largest number of classes for which `to_dict` includes the C x C cosines."""
PAIRS_NAMED = 5
"""Number of pairs of classes that tables name if there are more classes than that."""
CERTIFIED = 1000
"""Largest number of classes for which `to_dict` includes a certificate. It takes milliseconds, and
up to a tenth of a second for 1000 classes."""
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
        """Signal-to-noise ratios of the modes of the class means."""
        return metrics.snr_spectrum(self.moments)

    @cached_property
    def non_negative(self) -> bool:
        """Whether no class mean direction has a negative entry, as after a ReLU.

        Then no inter-class cosine can be negative. Only centred cosines can reach -1/(C - 1).
        """
        return bool((self.moments.unit_means >= 0).all())

    @cached_property
    def verdict(self) -> str:
        """Summary in plain words: whether the layer is collapsed, and what stands out.

        >>> import nclab
        >>> features = [[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, 0.1]]
        >>> print(nclab.measure_features(features, [0, 0, 1, 1]).verdict)
        Collapsed: the spread within classes is 0.0025 times the spread between them \
(0 = collapsed; random labels would give 2). The class means form a simplex ETF: their cosines \
differ from those of a simplex by 0 on average (0 = simplex).
        """
        return verdict(self)

    def certificate(self, delta: float | None = None, *, pairs: bool = True) -> Certificate:
        """Return what the norms and losses of this layer guarantee, with a bound for each class.

        Needs a classifier and samples of every class. Costs milliseconds, and up to seconds for
        the bound on pairs of classes and the optimum of unequal counts. With `pairs=False` both
        are omitted; the guarantee from the mean loss over samples then uses the network's own
        probabilities, as it does for soft labels that differ within a class.

        >>> import nclab
        >>> features = [[2.0, 0.0], [-2.0, 0.0], [2.0, 0.1], [-2.0, 0.1]]
        >>> weight = [[2.0, 0.0], [-2.0, 0.0]]
        >>> collapse = nclab.measure_features(features, [0, 1, 0, 1], weight=weight)
        >>> guaranteed = collapse.certificate().class_intra_lower
        >>> bool((guaranteed <= collapse.intra_cosine.numpy()).all())
        True
        """
        return theory.certificate_of(self, delta, pairs=pairs)

    def target(
        self,
        weight_decay: float | tuple[float, float] | None = None,
        *,
        loss: str = "cross_entropy",
        **options: Any,
    ) -> Target:
        """Return where this layer and its classifier should end, given counts, dimension and bias.

        Without `weight_decay` the target has the measured norms. With the weight decay of the
        classifier, that of the features is inferred: at an optimum both penalties are equal. Or
        pass both as (weights, features). `options` are those of `nclab.target`.

        >>> import nclab
        >>> features, weight = [[2.0, 0.0], [-2.0, 0.0]], [[2.0, 0.0], [-2.0, 0.0]]
        >>> collapse = nclab.measure_features(features, [0, 1], weight=weight)
        >>> collapse.target().geometry, round(collapse.distance_to(collapse.target()).means, 9)
        ('simplex ETF', 0.0)
        """
        return theory.target_for(self, weight_decay, loss=loss, **options)

    def distance_to(self, target: Target) -> TargetDistance:
        """Return the distances of class means, classifier and loss to a target and the ETF."""
        return theory.distance_from(self, target)

    @property
    def optimum_distance(self) -> OptimumDistance | None:
        """Distance to the optimum of cross-entropy for the measured class counts and norms.

        None without a classifier, or if that optimum takes long to compute; `to_dict` gives the
        reason in its notes. `target` computes optima of other settings.
        """
        return self._optimum_distance[0]

    @cached_property
    def _optimum_distance(self) -> tuple[OptimumDistance | None, str]:
        """The distance to the optimum, or the reason why it is missing."""
        try:
            return theory.optimum_distance(self), ""
        except NclabError as error:
            return None, "" if self.weight is None else str(error)

    def strata(self, groups: int = DECILES, *, by: Share = "samples") -> Strata:
        """Return groups of classes by frequency, each with its spread, accuracies, loss and norms.

        Every group has about the same number of samples, or of classes. Tables, pages and
        `to_dict` show ten groups if there are 20 or more classes of very different sizes.

        >>> import nclab
        >>> features, labels = [[1.0, 0.0], [3.0, 0.0], [0.0, 1.0]], [0, 0, 1]
        >>> groups = nclab.measure_features(features, labels).strata(2)
        >>> [(group.most, group.within) for group in groups]
        [(2, 1.6), (1, None)]
        """
        return strata(self, groups, by)

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
        if shows_strata(self.counts):
            parts["strata"] = self.strata().to_dicts()
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
        lines = [f"{prefix}{self.verdict}"]
        if self.class_names is not None:
            first, second = (self.name_of(number) for number in self.max_inter_pair)
            worst = self.class_names[int(self.intra_cosine.argmin())]
            lines.append(
                f"{prefix}the features of {worst} vary most; the most similar classes are {first} "
                f"and {second}"
            )
        if self.num_classes > PAIRS_SHOWN:
            pairs = (
                f"{self.name_of(first)} – {self.name_of(second)} {number(cosine)}"
                for first, second, cosine in self.closest_pairs[:PAIRS_NAMED]
            )
            lines.append(f"{prefix}closest classes: {', '.join(pairs)}")
        return lines

    def _picture(self) -> "Picture":
        return layer_picture(self._picture_row())

    def _picture_row(self) -> dict[str, Any]:
        """Return the row for pictures, with centred cosines if the features are non-negative."""
        row = self.to_dict()
        centred = self.non_negative and self.second_pass is not None
        if centred and row["inter_cosine"] is not None:
            return {**row, "inter_cosine": self.centred_inter_cosine.tolist(), "centred": True}
        return row

    def __rich__(self) -> Any:
        return with_summary(metric_table(self._table_rows()), self.summary())

    def _repr_html_(self) -> str:
        return html_table(self._table_rows(), remarks=self.summary())


def _finite(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None


def _finite_values(values: Mapping[str, float | None]) -> dict[str, float | None]:
    return {name: _finite(value) for name, value in values.items()}


def _finite_list(values: Tensor | None) -> list[float | None] | None:
    return None if values is None else [_finite(value) for value in values.double().tolist()]
