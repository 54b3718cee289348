"""CollapseDetector: out-of-distribution scores from the statistics of the training data."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn

from nclab.errors import DataError, ModelError, NclabError
from nclab.features.evaluation import evaluating, unwrap
from nclab.measurement.layer_stream import Head
from nclab.measurement.model import measure
from nclab.measurement.ood_scores import nc5, nci, neco, principal_directions, total_covariance
from nclab.statistics import ClassMoments
from nclab.statistics.checks import as_features

Score = Literal["neco", "nci"]


class CollapseDetector:
    """Tells samples that are unlike the training data, as detectors of pytorch-ood do.

    `fit(loader)` streams over the training data once and keeps class means and one d x d matrix,
    no features. `predict(inputs)`, or calling it, gives scores that are larger for samples out of
    the distribution; `postprocess(net, inputs)` is what OpenOOD calls, predictions and confidence.

    Args:
        model: any classifier whose last linear layer is a module; None to give features yourself.
        score: "neco", the share of a feature in the leading directions of the training data; or
            "nci", its projection onto the classifier row of its own prediction.
        dim: directions of NECO; C - 1 by default, those that collapse leaves.
        standardise: divide every coordinate by its standard deviation first, as NECO's code does.
        times_logit: multiply NECO by the largest logit, as its code does but for ResNets.
        alpha: of NCI, the weight of the features' L1 norm; the paper tunes it.

    >>> inputs, labels = torch.eye(3).repeat(4, 1), torch.arange(12) % 3
    >>> features = inputs @ torch.eye(3, 5)
    >>> detector = CollapseDetector(score="nci").fit_features(features, labels, torch.eye(3, 5))
    >>> known, strange = features[:1], torch.tensor([[0.0, 0.0, 0.0, 0.0, 1.0]])
    >>> bool(detector.predict_features(strange) > detector.predict_features(known))
    True
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        score: Score = "neco",
        *,
        dim: int | None = None,
        standardise: bool = True,
        times_logit: bool = False,
        alpha: float = 0.0,
    ) -> None:
        if model is not None and not isinstance(model, nn.Module):
            raise ModelError(f"Expected a torch.nn.Module, got a {type(model).__name__}.")
        if score not in get_args(Score):
            raise NclabError(f"Expected score='neco' or 'nci', got {score!r}.")
        self.model, self.score = model, score
        self.dim, self.standardise, self.times_logit = dim, standardise, times_logit
        self.alpha = alpha
        self.moments: ClassMoments | None = None
        """Statistics of the training data, once it is fitted."""
        self._head: Head | None = None
        self._classifier = ""

    def fit(self, loader: Iterable[Any], device: Any = None) -> Self:
        """Stream over the training data, one forward pass a batch."""
        model = self._model()
        report = measure(model, loader, second_pass=False)
        self._classifier = report.classifier
        found = report.last
        if not isinstance(self._layer(), nn.Linear) or found.weight is None:
            raise ModelError(
                f"Expected a model that ends in a torch.nn.Linear, got {report.classifier!r}. "
                "Pass features to fit_features and predict_features instead."
            )
        layer = self._layer()
        return self._fitted(found.moments, layer.weight.detach(), layer.bias)

    def fit_features(
        self, features: Any, labels: Any, weight: Any = None, bias: Any = None
    ) -> Self:
        """The same from features (n, d), with the classifier that reads them."""
        rows = as_features(features)
        classes = torch.as_tensor(labels)
        if len(classes) != len(rows):
            raise DataError(f"Expected a label for each of {len(rows)} rows, got {len(classes)}.")
        number = int(classes.max()) + 1 if weight is None else len(torch.as_tensor(weight))
        moments = ClassMoments(number, rows.shape[1], scatter=True)
        moments.update(rows, classes)
        moments.require_all_classes()
        return self._fitted(moments, weight, bias)

    def _fitted(self, moments: ClassMoments, weight: Any, bias: Any) -> Self:
        needs_head = self.score == "nci" or self.times_logit
        if weight is None and needs_head:
            raise DataError("Expected the classifier's weight for this score, got none.")
        if not moments.has_scatter and self.score == "neco":
            raise DataError(
                f"Expected features of up to 4096 dimensions for NECO, got {moments.dim}. Take "
                "score='nci'."
            )
        self.moments = moments.to("cpu")
        self._head = None
        if weight is not None:
            offset = None if bias is None else torch.as_tensor(bias).detach()
            self._head = Head.checked(weight, offset, moments.num_classes).to(torch.device("cpu"))
        if self.score == "neco":
            self._fit_directions()
        return self

    def _fit_directions(self) -> None:
        moments = self._moments()
        count = moments.num_classes - 1 if self.dim is None else self.dim
        if not 1 <= count <= moments.dim:
            raise NclabError(f"Expected dim from 1 to {moments.dim}, got {count}.")
        deviation = total_covariance(moments).diagonal().clamp_min(0).sqrt()
        constant = deviation <= 0
        scale = torch.where(constant, 1.0, deviation)  # a constant coordinate stays as it is
        self._scale = scale if self.standardise else torch.ones_like(scale)
        self._directions = principal_directions(moments, count, scale=self._scale)

    def predict(self, inputs: Any) -> Tensor:
        """(n,) scores of a batch of inputs, larger for what is unlike the training data."""
        features, logits = self._read(self._model(), inputs)
        return self._scored(features, logits)

    __call__ = predict

    def predict_features(self, features: Any, logits: Tensor | None = None) -> Tensor:
        """The same of features; logits are computed from the classifier where they are needed."""
        return self._scored(as_features(features), logits)

    def _scored(self, features: Tensor, logits: Tensor | None) -> Tensor:
        moments, rows = self._moments(), features.detach().double().cpu()
        if rows.ndim != 2 or rows.shape[1] != moments.dim:
            raise DataError(
                f"Expected features of shape (n, {moments.dim}), got {tuple(rows.shape)}."
            )
        if logits is None and self._head is not None:
            logits = self._head.logits(rows)
        if self.score == "neco":
            found = neco(rows, self._directions, moments.sample_mean, self._scale)
            if self.times_logit:
                assert logits is not None
                found = found * logits.detach().double().cpu().max(1).values
        else:
            assert self._head is not None
            assert logits is not None
            own = self._head.weight[logits.detach().cpu().argmax(1)]
            found = nci(rows, own, moments.sample_mean, alpha=self.alpha)
        return -found

    def nc5(self, loader: Iterable[Any]) -> float:
        """How far the mean of other data, batches of inputs, is from orthogonal to class means."""
        total, count = torch.zeros(self._moments().dim, dtype=torch.float64), 0
        for batch in loader:
            inputs = batch[0] if isinstance(batch, (tuple, list)) else batch
            features, _ = self._read(self._model(), inputs)
            total += features.double().cpu().sum(0)
            count += len(features)
        if not count:
            raise DataError("Expected batches of other data, got none.")
        return nc5(self._moments().means, total / count)

    def setup(self, net: nn.Module, id_loader_dict: Mapping[str, Any], *_: Any) -> None:
        """As OpenOOD calls it, with the loaders of the known data by name: fits on `train`."""
        self.model = net
        self.fit(_pairs(id_loader_dict["train"]))

    def postprocess(self, net: nn.Module, data: Tensor) -> tuple[Tensor, Tensor]:
        """As OpenOOD calls it: predicted classes and confidence, larger for known data."""
        features, logits = self._read(net, data)
        return logits.argmax(1), -self._scored(features, logits)

    def _read(self, net: nn.Module, inputs: Any) -> tuple[Tensor, Tensor]:
        """What the classifier reads and gives in one pass, the model in evaluation mode."""
        self._moments()
        seen: list[tuple[Tensor, Tensor]] = []
        own = unwrap(net)
        layer = own.get_submodule(self._classifier)
        hook = layer.register_forward_hook(lambda _, given, out: seen.append((given[0], out)))
        try:
            with evaluating(own):
                own(inputs)
        finally:
            hook.remove()
        if not seen:
            raise ModelError(f"Expected the forward pass to call {self._classifier!r}, it did not.")
        return seen[-1]

    def _layer(self) -> Any:
        try:
            return unwrap(self._model()).get_submodule(self._classifier)
        except AttributeError:
            return None

    def _model(self) -> nn.Module:
        if self.model is None:
            raise ModelError("Expected CollapseDetector(model), got none. Or pass features.")
        return self.model

    def _moments(self) -> ClassMoments:
        if self.moments is None:
            raise NclabError("Expected fit(loader) before predict, got none.")
        return self.moments


def _pairs(loader: Iterable[Any]) -> Any:
    """Batches of OpenOOD, mappings with data and label, as pairs; others as they are."""

    class Pairs:
        def __iter__(self) -> Any:
            for batch in loader:
                known = isinstance(batch, Mapping) and {"data", "label"} <= set(batch)
                yield (batch["data"], batch["label"]) if known else batch

    return Pairs()
