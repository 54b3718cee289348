"""Out-of-distribution scores from the geometry of collapse: NECO, NCI and NC5."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor, nn

from nclab.errors import DataError, ModelError, NclabError
from nclab.features.evaluation import evaluating, unwrap
from nclab.measurement.model import measure
from nclab.measurement.options import SCATTER_LIMIT, Head
from nclab.statistics import ClassMoments
from nclab.statistics.checks import as_features

Score = Literal["neco", "nci"]
TINY = 1e-300
"""Smallest norm that a score divides by, so that a zero feature gets the score 0."""


def neco(features: Tensor, directions: Tensor, centre: Tensor, scale: Tensor) -> Tensor:
    r"""Return the share of each feature in the leading directions of the training data.

    $$\|P^\top z\| / \|z\|, \qquad z = (h - \mu) / s$$

    Paper: Ben Ammar et al., NECO, ICLR 2024. As in its code, features are standardised. There the
    score is multiplied by the largest logit except for ResNets.
    Range: [0, 1]; larger is more familiar.

    >>> axis, zero, one = torch.eye(2)[:, :1], torch.zeros(2), torch.ones(2)
    >>> neco(torch.tensor([[5.0, 0.0], [3.0, 4.0]]), axis, zero, one)
    tensor([1.0000, 0.6000])
    """
    z = (features - centre) / scale
    return (z @ directions).norm(dim=1) / z.norm(dim=1).clamp_min(TINY)


def nci(features: Tensor, rows: Tensor, centre: Tensor, *, alpha: float) -> Tensor:
    r"""Return how close each feature is to the classifier row of its prediction, and its length.

    $$\frac{w_{\hat y}\cdot(h - \mu_G)}{\|h - \mu_G\|} + \alpha\,\|h\|_1$$

    Paper: Liu and Qin, Detecting out-of-distribution through the lens of neural collapse, CVPR
    2025. `rows` (n, d) are the classifier rows of the predicted classes.
    Range: (-inf, inf); larger is more familiar.

    >>> h, w = torch.tensor([[3.0, 4.0]]), torch.tensor([[2.0, 0.0]])
    >>> round(float(nci(h, w, torch.zeros(2), alpha=0.1)), 6)
    1.9
    """
    centred = features - centre
    projection = (centred * rows).sum(1) / centred.norm(dim=1).clamp_min(TINY)
    return projection + alpha * features.abs().sum(1)


def nc5(means: Tensor, other: Tensor) -> float:
    r"""Return the mean absolute cosine between the class means and the mean of other data.

    $$\frac1C\sum_c |\cos(\mu_c, \mu_{\mathrm{OOD}})|$$

    Paper: Ben Ammar et al., NECO, ICLR 2024, where training drives it to 0.
    Range: [0, 1].

    >>> nc5(torch.eye(3)[:2], torch.tensor([0.0, 0.0, 2.0]))
    0.0
    """
    cosines = torch.nn.functional.cosine_similarity(means.double(), other.double()[None], dim=1)
    return float(cosines.abs().mean())


class CollapseDetector:
    """Detector of samples unlike the training data, with the interface of pytorch-ood detectors.

    `fit(loader)` reads the training data once and keeps class means and one d x d matrix, but no
    features. `predict(inputs)`, or a call, returns scores that are larger for samples out of the
    distribution. `postprocess(net, inputs)` returns predictions and confidence for OpenOOD.

    Args:
        model: any classifier whose last linear layer is a module; None if you pass features.
        score: "neco", the share of a feature in the leading directions of the training data; or
            "nci", its projection onto the classifier row of its own prediction.
        dim: number of directions of NECO; by default C - 1, the dimension of collapsed means.
        standardise: divide every coordinate by its standard deviation first, as NECO's code does.
        times_logit: multiply NECO by the largest logit, as its code does except for ResNets.
        alpha: weight of the L1 norm of the features in NCI; the paper tunes it.

    >>> inputs, labels = torch.eye(3).repeat(4, 1), torch.arange(12) % 3
    >>> features = inputs @ torch.eye(3, 5)
    >>> detector = CollapseDetector(score="nci").fit_features(features, labels, torch.eye(3, 5))
    >>> known, unknown = features[:1], torch.tensor([[0.0, 0.0, 0.0, 0.0, 1.0]])
    >>> bool(detector.predict_features(unknown) > detector.predict_features(known))
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
        """Statistics of the training data, set by `fit`."""
        self._head: Head | None = None
        self._classifier = ""

    def fit(self, loader: Iterable[Any], device: Any = None) -> Self:
        """Read the training data, with one forward pass per batch."""
        model = self._required_model()
        report = measure(model, loader, second_pass=False)
        self._classifier = report.classifier
        try:
            layer = unwrap(model).get_submodule(self._classifier)
        except AttributeError:
            layer = None
        if not isinstance(layer, nn.Linear) or report.last.weight is None:
            raise ModelError(
                f"Expected a model that ends in a torch.nn.Linear, got {report.classifier!r}. "
                "Pass features to fit_features and predict_features instead."
            )
        return self._fitted(report.last.moments, layer.weight.detach(), layer.bias)

    def fit_features(
        self, features: Any, labels: Any, weight: Any = None, bias: Any = None
    ) -> Self:
        """Fit to features (n, d), with the classifier that reads them."""
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
                f"Expected features of up to {SCATTER_LIMIT} dimensions for NECO, got "
                f"{moments.dim}. Use score='nci'."
            )
        self.moments = moments.to("cpu")
        self._head = None
        if weight is not None:
            offset = None if bias is None else torch.as_tensor(bias).detach()
            self._head = Head.checked(weight, offset, moments.num_classes).to(torch.device("cpu"))
        if self.score == "neco":
            self._fit_directions(self.moments)
        return self

    def _fit_directions(self, moments: ClassMoments) -> None:
        """Set the scale and the leading directions of NECO from the covariance of all samples.

        It is the covariance within classes plus that of the class means, so no feature is kept.
        """
        count = moments.num_classes - 1 if self.dim is None else self.dim
        if not 1 <= count <= moments.dim:
            raise NclabError(f"Expected dim from 1 to {moments.dim}, got {count}.")
        shares = moments.counts.double() / moments.total
        centred = moments.means - moments.sample_mean  # (C, d)
        between = centred.T @ (shares[:, None] * centred)
        covariance = moments.within_scatter / moments.total + between
        deviation = covariance.diagonal().clamp_min(0).sqrt()
        scale = torch.where(deviation <= 0, 1.0, deviation)  # constant coordinates are not scaled
        self._scale = scale if self.standardise else torch.ones_like(scale)
        scaled = covariance / self._scale.outer(self._scale)
        vectors = torch.linalg.eigh(scaled).eigenvectors  # ascending
        self._directions = vectors[:, -count:].flip(1)

    def predict(self, inputs: Any) -> Tensor:
        """Return (n,) scores of a batch of inputs; larger is less like the training data."""
        features, logits = self._run(self._required_model(), inputs)
        return self._score(features, logits)

    __call__ = predict

    def predict_features(self, features: Any, logits: Tensor | None = None) -> Tensor:
        """Return (n,) scores of features; missing logits are computed from the classifier."""
        return self._score(as_features(features), logits)

    def _score(self, features: Tensor, logits: Tensor | None) -> Tensor:
        moments, rows = self._required_moments(), features.detach().double().cpu()
        if rows.ndim != 2 or rows.shape[1] != moments.dim:
            raise DataError(
                f"Expected features of shape (n, {moments.dim}), got {tuple(rows.shape)}."
            )
        if logits is None and self._head is not None:
            logits = self._head.logits(rows)
        if self.score == "neco":
            scores = neco(rows, self._directions, moments.sample_mean, self._scale)
            if self.times_logit:
                assert logits is not None
                scores = scores * logits.detach().double().cpu().max(1).values
        else:
            assert self._head is not None
            assert logits is not None
            predicted = self._head.weight[logits.detach().cpu().argmax(1)]
            scores = nci(rows, predicted, moments.sample_mean, alpha=self.alpha)
        return -scores

    def nc5(self, loader: Iterable[Any]) -> float:
        """Return the mean absolute cosine between the class means and the mean of other data."""
        total, count = torch.zeros(self._required_moments().dim, dtype=torch.float64), 0
        for batch in loader:
            inputs = batch[0] if isinstance(batch, (tuple, list)) else batch
            features, _ = self._run(self._required_model(), inputs)
            total += features.double().cpu().sum(0)
            count += len(features)
        if not count:
            raise DataError("Expected batches of other data, got none.")
        return nc5(self._required_moments().means, total / count)

    def setup(self, net: nn.Module, id_loader_dict: Mapping[str, Any], *_: Any) -> None:
        """Fit to the loader named "train"; OpenOOD calls this method."""
        self.model = net
        pairs = (
            (batch["data"], batch["label"])
            if isinstance(batch, Mapping) and "data" in batch
            else batch
            for batch in id_loader_dict["train"]
        )
        self.fit(pairs)

    def postprocess(self, net: nn.Module, data: Tensor) -> tuple[Tensor, Tensor]:
        """Return predicted classes and confidence, larger for known data; OpenOOD calls this."""
        features, logits = self._run(net, data)
        return logits.argmax(1), -self._score(features, logits)

    def _run(self, net: nn.Module, inputs: Any) -> tuple[Tensor, Tensor]:
        """Return input and output of the classifier in a forward pass in evaluation mode."""
        self._required_moments()
        recorded: list[tuple[Tensor, Tensor]] = []
        model = unwrap(net)
        layer = model.get_submodule(self._classifier)
        hook = layer.register_forward_hook(lambda _, args, out: recorded.append((args[0], out)))
        try:
            with evaluating(model):
                model(inputs)
        finally:
            hook.remove()
        if not recorded:
            raise ModelError(f"Expected the forward pass to call {self._classifier!r}.")
        return recorded[-1]

    def _required_model(self) -> nn.Module:
        if self.model is None:
            raise ModelError("Expected CollapseDetector(model), got no model. Or pass features.")
        return self.model

    def _required_moments(self) -> ClassMoments:
        if self.moments is None:
            raise NclabError("Expected a fitted detector. Call fit(loader) before predict.")
        return self.moments
