"""Collapse: a measurement of one layer at one moment."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from nclab import metrics
from nclab.errors import DataError, NclabError
from nclab.frame import as_frame
from nclab.measurement.aims import distance_of, map_point, target_of
from nclab.measurement.guarantees import certificate_of
from nclab.measurement.interval import Interval
from nclab.measurement.page import Shown
from nclab.measurement.strata import DECILES, Share, Strata, are_shown, strata
from nclab.measurement.toward import Toward, toward
from nclab.metrics.catalogue import BY_NAME, EXTRAS, every_metric
from nclab.metrics.target_distance import MEANINGS
from nclab.statistics import ClassMoments, SecondPass
from nclab.statistics.residuals import ResidualMoments
from nclab.text import number
from nclab.theory.certificates.certificate import Certificate
from nclab.theory.targets.distance import TargetDistance
from nclab.theory.targets.result import Target

if TYPE_CHECKING:
    from pandas import DataFrame

    from nclab.figures.picture import Picture

PAIRS_SHOWN = 100
"""Up to this many classes `to_dict` includes the C x C cosines; of more, tables name some."""
PAIRS_NAMED = 5
"""Pairs that tables name."""
CERTIFIED = 1000
"""Up to this many classes `to_dict` includes a certificate; it takes milliseconds, at 1000 classes
up to a tenth of a second."""


class ClassPair(NamedTuple):
    """Two classes and their inter-class cosine."""

    one: int
    other: int
    cosine: float


@dataclass(frozen=True, eq=False, repr=False)
class Collapse(Shown):
    """A measurement of one layer: scalars, the arrays behind them, and what is missing and why.

    A scalar that could not be measured is None and `notes` gives the reason under its name.
    Per-class arrays follow the order of `classes`.

    >>> import nclab
    >>> collapse = nclab.measure_features([[1.0, 0.0], [0.0, 1.0]], [0, 1])
    >>> collapse.max_inter, collapse.loss, collapse.notes["loss"]
    (0.0, None, 'no classifier weights were given')
    """

    layer: str | None
    """Name of the layer, if it has one."""
    num_classes: int
    dim: int
    samples: int
    classes: tuple[int, ...]
    """The classes measured; shorter than the label range where classes without samples were
    left out."""
    zero_features: int
    """Feature vectors that are exactly zero and so have no direction."""
    ignored: int
    """Rows skipped because of their label."""
    bias_norm: float
    """Norm of the classifier's bias around its mean; 0 without a bias."""
    values: Mapping[str, float | None]
    """The scalars by name, in the order of the tables; each is an attribute too."""
    max_inter_pair: tuple[int, int]
    """The two classes with the largest inter-class cosine."""
    counts: Tensor
    """(C,) samples per class."""
    intra_cosine: Tensor
    """(C,) intra-class cosine."""
    variances: Tensor
    """(C,) mean squared distance to the class mean."""
    class_alpha: Tensor
    """(C,) rms feature norm."""
    class_beta: Tensor | None
    """(C,) norm of the centred classifier row."""
    class_loss: Tensor | None
    """(C,) mean cross-entropy."""
    nc3_alignment: Tensor | None
    """(C,) cosine of the centred classifier row and the class mean."""
    notes: Mapping[str, str]
    """Metric -> why it is None or infinite."""
    warnings: tuple[str, ...]
    """What a reader of the numbers should know."""
    moments: ClassMoments
    """The statistics the numbers come from."""
    look: SecondPass | None
    class_names: tuple[str, ...] | None = None
    """Names of `classes`, if they have any."""
    split: str | None = None
    """What the data are called: train, test, ..."""
    intervals: Mapping[str, Interval] | None = None
    """Scalar -> its 95 % interval, where they were asked for with `intervals=True`."""
    no_interval: Mapping[str, str] = field(default_factory=dict)
    """Scalar -> why it has no interval."""
    null: Mapping[str, float | None] | None = None
    """The scalars with shuffled labels, where they were asked for with `null=True`."""
    weight: Tensor | None = None
    """(C, d) rows of the classifier that reads the layer."""
    class_accuracy: Tensor | None = None
    """(C,) share of samples that the classifier is right about."""
    left_out: tuple[int, ...] = ()
    """Classes with fewer samples than `min_count`."""
    residuals: ResidualMoments | None = None
    """Sums of the classifier's probabilities less the labels: of up to d classes and no more than
    1000, 128 where labels are soft; of up to 4096 with metrics="all"."""
    closest_pairs: tuple[ClassPair, ...] = ()
    """The ten pairs of classes with the largest inter-class cosines, largest first."""

    def __getattr__(self, name: str) -> float | None:
        values: Mapping[str, float | None] = self.__dict__.get("values", {})
        if name in values:
            return values[name]
        if name in {metric.name for metric in EXTRAS}:
            raise AttributeError(f"Collapse has no {name!r}. Measure with metrics='all'.")
        if name in BY_NAME:
            raise AttributeError(f"Collapse has {name!r} only if measured with reference=.")
        near = get_close_matches(name, values, n=1)
        hint = f"Did you mean {near[0]}?" if near else "Its metrics are the keys of .values."
        raise AttributeError(f"Collapse has no {name!r}. {hint}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.values})

    @cached_property
    def inter_cosine(self) -> Tensor:
        """(C, C) inter-class cosines, intra-class on the diagonal; made when asked for."""
        return metrics.inter_cosine(self.moments)

    @cached_property
    def centred_inter_cosine(self) -> Tensor:
        """(C, C) the same for features centred by the global mean; made when asked for."""
        if self.look is None:
            raise DataError(f"Expected a second pass, got none: {self.notes['centred_max_inter']}")
        return metrics.inter_cosine(self.look)

    @cached_property
    def cdnv_pairs(self) -> Tensor:
        """(C, C) class-distance normalised variances; made when asked for."""
        return metrics.cdnv_pairs(self.moments)

    @cached_property
    def snr_spectrum(self) -> Tensor:
        """Signal-to-noise ratios of the modes of the class means; made when asked for."""
        return metrics.snr_spectrum(self.moments)

    def certificate(self, delta: float | None = None, *, pairs: bool = True) -> Certificate:
        """What norms and losses of this layer guarantee, with a bound for every single class.

        Needs a classifier and samples of every class. Costs milliseconds, and up to seconds for
        the bound on pairs of classes and the optimum of unequal counts, which `pairs=False` leaves
        out: what the mean loss over samples guarantees then comes from the network's own
        probabilities, as does that of soft labels which differ within a class.

        >>> import nclab
        >>> features = [[2.0, 0.0], [-2.0, 0.0], [2.0, 0.1], [-2.0, 0.1]]
        >>> weight = [[2.0, 0.0], [-2.0, 0.0]]
        >>> collapse = nclab.measure_features(features, [0, 1, 0, 1], weight=weight)
        >>> promised = collapse.certificate().class_intra_lower
        >>> bool((promised <= collapse.intra_cosine.numpy()).all())
        True
        """
        return certificate_of(self, delta, pairs=pairs)

    def target(
        self,
        weight_decay: float | tuple[float, float] | None = None,
        *,
        loss: str = "cross_entropy",
        **options: Any,
    ) -> Target:
        """Where this layer and its classifier should end, by counts, dimension and bias.

        Without `weight_decay` the norms are those measured. With it, that of the classifier, the
        one of the features is inferred: at an optimum both penalties are equal; or pass both.
        `options` are those of `nclab.target`.

        >>> import nclab
        >>> features, weight = [[2.0, 0.0], [-2.0, 0.0]], [[2.0, 0.0], [-2.0, 0.0]]
        >>> collapse = nclab.measure_features(features, [0, 1], weight=weight)
        >>> collapse.target().geometry, round(collapse.distance_to(collapse.target()).means, 9)
        ('simplex ETF', 0.0)
        """
        return target_of(self, weight_decay, loss=loss, **options)

    def distance_to(self, target: Target) -> TargetDistance:
        """How far class means, classifier and loss are from a target, and from the simplex ETF."""
        return distance_of(self, target)

    def map_point(self, weight_decay: float, state: str | None = None) -> dict[str, Any]:
        """This network as a row for `nclab target --map imbalance --points`.

        `weight_decay` is that of the classifier; that of the features is inferred from the balance
        of norms, and both are given as one, t sqrt n. Without a `state` the map takes that of
        `minority_cosine`.
        """
        return map_point(self, weight_decay, state)

    @cached_property
    def toward(self) -> Toward | None:
        """How far this is from the optimum of its own counts and norms, beside the simplex ETF.

        Under cross-entropy with free features; None where there is no classifier, or where that
        optimum is dear, with the reason in the notes of `to_dict`. `target` takes other settings.
        """
        return self._toward[0]

    @cached_property
    def _toward(self) -> tuple[Toward | None, str]:
        try:
            return toward(self), ""
        except NclabError as error:
            return None, "" if self.weight is None else str(error)

    def strata(self, groups: int = DECILES, *, by: Share = "samples") -> Strata:
        """Classes in groups by frequency, each with its own spread, accuracies, loss and norms.

        Every group has about the same number of samples, or of classes. Tables, pages and
        `to_dict` have ten of them where classes are 20 or more and uneven.

        >>> import nclab
        >>> features, labels = [[1.0, 0.0], [3.0, 0.0], [0.0, 1.0]], [0, 0, 1]
        >>> groups = nclab.measure_features(features, labels).strata(2)
        >>> [(group.most, group.within) for group in groups]
        [(2, 1.6), (1, None)]
        """
        return strata(self, groups, by)

    def _shown_strata(self) -> dict[str, Any]:
        """What tables show of groups of classes; empty where they do not."""
        return {"strata": self.strata().to_dicts()} if are_shown(self.counts) else {}

    def scalars(self) -> dict[str, float | None]:
        """The scalar metrics by name, in the order of the tables."""
        return dict(self.values)

    def to_row(self) -> dict[str, Any]:
        """One flat row for a DataFrame: the layer, its sizes and every scalar."""
        head: dict[str, Any] = {} if self.split is None else {"split": self.split}
        head |= {"layer": self.layer, "dim": self.dim, "samples": self.samples}
        tail = {
            "zero_features": self.zero_features,
            "ignored": self.ignored,
            "bias_norm": self.bias_norm,
        }
        own = dict.fromkeys(MEANINGS) if self.toward is None else self.toward.values()
        return {**head, "num_classes": self.num_classes, **self.scalars(), **own, **tail}

    def to_frame(self) -> "DataFrame":
        """A pandas table with a row for every metric: value, value at collapse, meaning.

        Where they were measured, with both ends of its interval and its value for shuffled labels.
        A value that is missing is one with a reason in `notes`.

        >>> import nclab
        >>> frame = nclab.measure_features([[1.0, 0.0], [0.0, 1.0]], [0, 1]).to_frame()
        >>> frame.loc["max_inter", ["value", "at_collapse"]].tolist()
        [0.0, -1.0]
        """
        rows = []
        for name, value in self.scalars().items():
            metric = every_metric()[name]
            ideal = None if metric.ideal is None else metric.ideal(self.num_classes)
            row = {"value": value, "at_collapse": ideal}
            if self.intervals is not None:
                own = self.intervals.get(name)
                row |= {"low": own and own.low, "high": own and own.high}
            if self.null is not None:
                row["labels_shuffled"] = self.null.get(name)
            rows.append({**row, "meaning": metric.meaning})
        return as_frame(rows, index=list(self.scalars()))

    def table_rows(self) -> list[dict[str, Any]]:
        """What the tables show: the flat row, with notes and warnings."""
        row = {**self.to_row(), "notes": dict(self.notes), "warnings": list(self.warnings)}
        row |= self._shown_strata()
        return [{**row, **self._uncertainty(), "non_negative": self.non_negative}]

    def lines(self) -> list[str]:
        """What is said below the table: which classes stand out, by their names; what it means."""
        of = f"{self.split}: " if self.split else ""
        named = []
        if self.class_names is not None:
            one, other = (self.name_of(number) for number in self.max_inter_pair)
            worst = self.class_names[int(self.intra_cosine.argmin())]
            named = [f"{of}least alike within {worst}, most alike between {one} and {other}"]
        if self.num_classes > PAIRS_SHOWN:
            pairs = (
                f"{self.name_of(one)} – {self.name_of(other)} {number(cosine)}"
                for one, other, cosine in self.closest_pairs[:PAIRS_NAMED]
            )
            named.append(f"{of}closest classes: {', '.join(pairs)}")
        own = "" if self.toward is None else self.toward.in_words()
        return [*named, f"{of}{self.verdict}", *([f"{of}{own}"] if own else [])]

    def name_of(self, number: int) -> str:
        """What a measured class is called: its name, or its number where it has none."""
        if self.class_names is None:
            return str(number)
        return self.class_names[self.classes.index(number)]

    @cached_property
    def verdict(self) -> str:
        """In plain words: is this collapsed, compared with what, and what stands out.

        >>> import nclab
        >>> features = [[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, 0.1]]
        >>> print(nclab.measure_features(features, [0, 0, 1, 1]).verdict)
        Within classes: collapsed (tr Σ_W/tr Σ_B 0.0025; labels at random 2). \
Class means: a simplex ETF (cosines off by 0).
        """
        from nclab.measurement.verdict import verdict

        return verdict(self)

    @cached_property
    def non_negative(self) -> bool:
        """Whether no class has a mean direction with a negative entry, as after a ReLU.

        Then no inter-class cosine can be negative, and only centred ones can reach -1/(C - 1).
        """
        return bool((self.moments.unit_means >= 0).all())

    def _uncertainty(self) -> dict[str, Any]:
        """What was asked for beside the values, as plain JSON values."""
        found: dict[str, Any] = {}
        if self.intervals is not None:
            found["intervals"] = {name: list(one) for name, one in self.intervals.items()}
            found["no_interval"] = dict(self.no_interval)
        if self.null is not None:
            found["null"] = {name: _finite(value) for name, value in self.null.items()}
        return found

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON values; what is not finite is None with a note."""
        pairs = self.inter_cosine.tolist() if self.num_classes <= PAIRS_SHOWN else None
        notes = dict(self.notes)
        if pairs is None:
            notes["inter_cosine"] = f"more than {PAIRS_SHOWN} classes; use .inter_cosine"
        names = ("intra_cosine", "nc3_alignment", "class_loss", "class_alpha", "class_beta")
        scalars = {name: _finite(value) for name, value in self.scalars().items()}
        certificate, why = self._recorded_certificate()
        for name, reason in (("certificate", why), ("target_distance", self._toward[1])):
            if reason:
                notes[name] = reason
        return {
            **self.to_row(),
            **scalars,
            "max_inter_pair": list(self.max_inter_pair),
            "closest_pairs": self._named_pairs(),
            "classes": list(self.classes),
            **({} if self.class_names is None else {"class_names": list(self.class_names)}),
            **{name: _finite_list(getattr(self, name)) for name in names},
            "class_variance": _finite_list(self.variances),
            "class_counts": self.counts.tolist(),
            "inter_cosine": pairs,
            "certificate": certificate,
            "notes": notes,
            "warnings": list(self.warnings),
            "verdict": self.verdict,
            **self._shown_strata(),
            **({} if self.toward is None else {"own_target": self._own_target(self.toward)}),
            **self._uncertainty(),
        }

    def _own_target(self, own: Toward) -> dict[str, Any]:
        """What a record keeps of the own optimum beside its scalars."""
        return {"geometry": own.distance.geometry, "weight_decay": list(own.weight_decay)}

    def _named_pairs(self) -> list[dict[str, Any]]:
        """The closest pairs, with the names of the classes where they have some."""
        rows = []
        for one, other, cosine in self.closest_pairs:
            row: dict[str, Any] = {"classes": [one, other], "cosine": cosine}
            if self.class_names is not None:
                row["names"] = [self.name_of(one), self.name_of(other)]
            rows.append(row)
        return rows

    def _recorded_certificate(self) -> tuple[dict[str, Any] | None, str]:
        """What a record keeps of the certificate, or why it has none; no word without a loss."""
        if self.balanced_loss is None:
            return None, ""
        if self.num_classes > CERTIFIED:
            return None, f"more than {CERTIFIED} classes; use .certificate()"
        try:
            return self.certificate(pairs=False).to_record(), ""
        except NclabError as error:
            return None, str(error)

    def _picture(self) -> "Picture":
        from nclab.figures.measured import layer_picture

        return layer_picture(self._seen())

    def _seen(self) -> dict[str, Any]:
        """What pictures show: centred cosines where others cannot reach their ideal."""
        row = self.to_dict()
        if self.non_negative and self.look is not None and row["inter_cosine"] is not None:
            return {**row, "inter_cosine": self.centred_inter_cosine.tolist(), "centred": True}
        return row

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        from nclab.measurement.table import side_by_side

        return Group(side_by_side(self.table_rows()), *(Text(line) for line in self.lines()))

    def _repr_html_(self) -> str:
        from nclab.figures.measured import mini_map

        small = mini_map(self._seen()) if self.num_classes <= PAIRS_SHOWN else ""
        return self._html_table(self.lines()) + small


def _finite(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None


def _finite_list(values: Tensor | None) -> list[float | None] | None:
    return None if values is None else [_finite(value) for value in values.double().tolist()]
