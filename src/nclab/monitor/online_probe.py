"""OnlineProbe: a linear classifier trained on features during any training, and their collapse.

A probe serves networks without a classifier, as in self-supervised training. Features are detached
and the probe draws no random numbers, so the training is not changed.
"""

from typing import Any

import torch
from torch import Tensor, nn

from nclab.errors import DataError, NclabError
from nclab.measurement.collapse import Collapse
from nclab.measurement.gather import gather
from nclab.measurement.options import SCATTER_LIMIT
from nclab.statistics import ClassMoments, LogitStatistics

REASONS = {
    "second pass": "a probe sees each feature once; use nclab.measure_features",
    "scatter": "the d x d scatter is not kept beyond 4096 dimensions",
}


class OnlineProbe:
    """Logistic regression by SGD on a stream of features, and the collapse of these features.

    `update(features, labels)` takes a step of the probe and adds the batch to the statistics;
    `watch(...)` only adds the batch. `compute()` returns the `Collapse` of all batches since
    `reset()`, with the probe as the classifier.

    Args:
        num_classes: number of classes.
        name: name of the features in tables and loggers.
        rate, momentum: learning rate and momentum of the probe's SGD, which starts at zero weights;
            features are divided by their typical norm first, so that the rate fits any network.

    >>> probe = OnlineProbe(2, name="embedding")
    >>> features, labels = torch.tensor([[2.0, 0.0], [-2.0, 0.0]]), torch.tensor([0, 1])
    >>> for _ in range(20):
    ...     probe.update(features, labels)
    >>> collapse = probe.compute()
    >>> collapse.layer, collapse.accuracy, collapse.samples
    ('embedding', 0.975, 40)
    """

    def __init__(
        self, num_classes: int, *, name: str = "probe", rate: float = 0.5, momentum: float = 0.9
    ) -> None:
        if isinstance(num_classes, bool) or not isinstance(num_classes, int) or num_classes < 2:
            raise NclabError(f"Expected num_classes=2 or more, got {num_classes!r}.")
        if not (rate > 0 and 0 <= momentum < 1):
            raise NclabError(
                f"Expected rate above 0 and momentum in [0, 1), got {rate} and {momentum}."
            )
        self.num_classes, self.name = num_classes, name
        self.rate, self.momentum = rate, momentum
        self.weight: Tensor | None = None
        """(C, d) weight of the probe; None before the first batch."""
        self.bias: Tensor | None = None
        self._velocity: list[Tensor] = []
        self._norm = 0.0
        self.reset()

    def reset(self) -> None:
        """Clear the statistics, as for another epoch, but keep the probe."""
        self._moments: ClassMoments | None = None
        self._logits: LogitStatistics | None = None

    @property
    def seen(self) -> int:
        """Number of samples since the last reset."""
        return 0 if self._moments is None else self._moments.total

    def update(self, features: Tensor, labels: Tensor) -> None:
        """Add the batch, with the current probe's logits, to the statistics; then take a step."""
        rows, classes = self._checked(features, labels)
        logits = self._add(rows, classes)
        self._step(rows, classes, logits)

    def watch(self, features: Tensor, labels: Tensor) -> None:
        """Add a batch to the statistics without a step, as for validation data."""
        self._add(*self._checked(features, labels))

    def compute(self) -> Collapse:
        """Return the collapse of all samples since the last reset, with the current probe."""
        if self._moments is None or int((self._moments.counts > 0).sum()) < 2:
            raise DataError("Expected features of two classes or more, got fewer. Update first.")
        return gather(
            self._moments,
            weight=self.weight,
            bias=self.bias,
            logits=self._logits,
            layer=self.name,
            reasons=REASONS,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the probe, without the statistics of an unfinished epoch."""
        return {"weight": self.weight, "bias": self.bias, "norm": self._norm, "v": self._velocity}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the probe of a state."""
        self.weight, self.bias = state["weight"], state["bias"]
        self._norm, self._velocity = state["norm"], list(state["v"])

    def _checked(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        rows, classes = features.detach().double(), labels.detach().to(features.device)
        if rows.ndim != 2 or classes.ndim != 1 or len(rows) != len(classes):
            raise DataError(
                f"Expected features (B, d) and labels (B,), got {tuple(features.shape)} and "
                f"{tuple(labels.shape)}. Pool the features first."
            )
        if self.weight is not None and rows.shape[1] != self.weight.shape[1]:
            dim = self.weight.shape[1]
            raise DataError(f"Expected features of dimension {dim}, got {rows.shape[1]}.")
        finite = rows.isfinite().all(1)
        return rows[finite], classes[finite].long()

    def _add(self, rows: Tensor, classes: Tensor) -> Tensor:
        dim = rows.shape[1]
        if self.weight is None or self.bias is None:
            self.weight = rows.new_zeros(self.num_classes, dim)
            self.bias = rows.new_zeros(self.num_classes)
            self._velocity = [torch.zeros_like(self.weight), torch.zeros_like(self.bias)]
        if self._moments is None or self._logits is None:
            kept = dim <= SCATTER_LIMIT
            self._moments = ClassMoments(self.num_classes, dim, scatter=kept, device=rows.device)
            self._logits = LogitStatistics(self.num_classes, device=rows.device)
        logits = torch.addmm(self.bias, rows, self.weight.T)
        if len(rows):
            self._moments.update(rows, classes)
            self._logits.update(logits, classes)
        return logits

    def _step(self, rows: Tensor, classes: Tensor, logits: Tensor) -> None:
        assert self.weight is not None
        assert self.bias is not None
        if not len(rows):
            return
        typical = float(rows.square().sum(1).mean())
        self._norm = typical if self._norm == 0 else 0.99 * self._norm + 0.01 * typical
        onehot = nn.functional.one_hot(classes, self.num_classes).double()
        residual = (logits.softmax(1) - onehot) / len(rows)  # (B, C)
        scale = max(self._norm, 1e-300)
        for parameter, velocity, gradient in zip(
            (self.weight, self.bias),
            self._velocity,
            (residual.T @ rows / scale, residual.sum(0)),
            strict=True,
        ):
            velocity.mul_(self.momentum).add_(gradient)
            parameter.sub_(velocity, alpha=self.rate)
