"""Cross-entropy with features that are not negative: orthogonal means, one problem per class."""

import torch
from torch import Tensor

from nclab.theory.targets.setting import Setting
from nclab.theory.targets.solved import CLOSED, Solved


def relu_gaps(counts: Tensor, metric: Tensor, weight: float) -> Tensor:
    r"""(C,) how much larger each class's own logit is at the optimum with H >= 0.

    $$p_c = \frac{n t\sqrt{d_c}}{n_c\sqrt{C(C-1)}},\qquad
    \gamma_c = \log\frac{1-(C-1)p_c}{p_c} \text{ or } 0$$

    For D = n, $p_c = nt/\sqrt{n_cC(C-1)}$, and a class is lost iff
    $n_c \le (nt)^2 C/(C-1)$. Derived in docs/targets.md.

    >>> gaps = relu_gaps(torch.tensor([20.0, 5.0]).repeat(2), torch.tensor([20.0, 5.0]).repeat(2),
    ...                  0.002)
    >>> [round(float(gap), 3) for gap in gaps[:2]]
    [5.023, 4.31]
    """
    C = len(counts)
    p = weight * counts.sum() * metric.sqrt() / (counts * (C * (C - 1)) ** 0.5)
    right = 1 - (C - 1) * p
    return torch.where(right > p, (right.clamp(min=1e-300) / p).log(), 0.0)


def solve_relu(setting: Setting, weight: float) -> Solved:
    """The optimum: W = P diag(omega), means along different axes."""
    counts, metric, C = setting.counts, setting.metric, setting.num_classes
    gaps = relu_gaps(counts, metric, weight)
    losses = ((C - 1) * (-gaps).exp()).log1p()
    loss = float(counts @ losses / counts.sum())
    costs = gaps * (metric * (C - 1) / C).sqrt()
    norm = float(costs.sum())
    centring = torch.eye(C, dtype=torch.float64) - 1 / C
    rows = gaps * (metric * C / (C - 1)).sqrt()  # omega^2
    return Solved(
        logits=centring * gaps,
        bias=torch.zeros_like(gaps),
        loss=loss,
        penalty=weight * norm,
        left=(centring * rows) @ centring,
        right=(gaps * ((C - 1) / (C * metric)).sqrt()).diag(),
        lower=loss + weight * norm,
        proof=CLOSED,
        geometry="orthogonal means, centred classifier",
        source="docs/targets.md, features that are not negative; cf. Dang et al. 2024",
        norm=norm,
        weight=weight,
    )
