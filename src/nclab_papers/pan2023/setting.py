"""Claims about the setting of the thesis: simplex ETF, batch norm, regularised loss, bias."""

import copy
import math

import numpy as np
import torch
from torch import Tensor, nn

from nclab.claims.claim import Finding, Kind, Numbers, Verdict, claim
from nclab.claims.statements import (
    describe,
    describe_tally,
    hand_error,
    holds_if,
    judge_if,
    judge_statement,
    max_abs,
    relative_error,
    statement,
    tally,
    with_hand_check,
)
from nclab.metrics.nc2_simplex_etf import simplex_etf
from nclab.theory.certificates.regularised import regularised_optimum
from nclab.theory.layer_peeled import FloatArray, g
from nclab.theory.statements import ROUNDING, Inequality, sample_losses
from nclab_papers.pan2023.loss_steps import networks

EXACT = 1e-12
"""An error of at most this size counts as rounding, for numbers of order one."""
LAYERS = {"quick": 30, "paper": 300}
"""Number of tested batch norm layers, by preset."""


@statement(
    "pan2023/def-1.2.1",
    Kind.DEFINITION,
    r"A simplex equiangular tight frame is the standard one, turned into $d \ge C$ dimensions "
    r"and scaled; the cosine of any two of its $C$ vectors is $-\frac{1}{C-1}$.",
    "pan2023, Def. 1.2.1 “An ETF structure is a set of vectors”",
    simplex_etf,
    judge=judge_if(
        lambda numbers: max(numbers["scalar_error"], numbers["small_dimension_error"]) <= EXACT,
        "with one scale, the cosines are within {scalar_error} of -1/(C-1); with a scale for every "
        "coordinate they would change by {vector_error}; nclab's frames in C - 1 dimensions also "
        "have these cosines (error {small_dimension_error})",
    ),
)
def frames(preset: str) -> Numbers:
    rng = np.random.default_rng(0)
    printed, small, stretched = [], [], []
    for classes in (2, 3, 4, 10, 30):
        standard = math.sqrt(classes / (classes - 1)) * (np.eye(classes) - 1 / classes)
        turn = np.linalg.qr(rng.normal(size=(classes + 3, classes)))[0]
        printed.append(_cosine_error(rng.uniform(0.5, 2.0) * (turn @ standard).T))
        scales = rng.uniform(0.5, 2.0, size=(classes + 3, 1))
        stretched.append(_cosine_error((scales * (turn @ standard)).T))
        small.append(_cosine_error(simplex_etf(classes, classes - 1).numpy()))
    return {
        "scalar_error": max(printed),
        "vector_error": max(stretched),
        "small_dimension_error": max(small),
        "hand_error": relative_error(
            (simplex_etf(2, 1), [[1.0], [-1.0]]),
            (simplex_etf(3, 2), [[0.75**0.5, 0.5], [-(0.75**0.5), 0.5], [0.0, -1.0]]),
        ),
    }


def _cosine_error(rows: FloatArray) -> float:
    """Return the largest deviation of cosines and relative norms of C rows from a simplex ETF."""
    count = len(rows)
    gram = rows @ rows.T / np.square(rows).sum(1).mean()
    return max_abs(gram - (np.eye(count) * count - 1) / (count - 1))


def batch_norm_rms_printed(
    layer: nn.BatchNorm1d, inputs: Tensor, *, batch_size: int | None = None
) -> Inequality:
    r"""Compare the root mean square norm after batch normalisation with the norm of its scale.

    $$\sqrt{\tfrac1N\sum_i\|h_i\|^2} = \|\gamma\|$$

    Source: pan2023, Prop. 2.2.1
    Range: bias 0, as printed. gamma is the scale of the layer. Exact only in training mode, without
    a constant coordinate, and with eps = 0; torch requires eps > 0, but 1e-300 has no effect.
    `batch_norm_mean_square` is true for every layer.
    """
    outputs, gamma, bias = _outputs(layer, inputs, batch_size)
    left = outputs.square().sum(1).mean().sqrt()
    right = torch.linalg.vector_norm(gamma)
    applies = np.asarray(not bool(bias.any()))
    tolerance = ROUNDING * float(right)
    return Inequality(left.numpy(), "==", right.numpy(), applies, tolerance)


def batch_norm_mean_square(
    layer: nn.BatchNorm1d, inputs: Tensor, *, batch_size: int | None = None
) -> Inequality:
    r"""Compare the mean square norm after batch normalisation with its exact value.

    $$\tfrac1N\sum_i\|h_i\|^2 =
      \sum_k\frac{\gamma_k^2\sigma_k^2}{\sigma_k^2+\mathrm{eps}} + \|b\|^2$$

    Source: pan2023, Prop. 2.2.1 (exact)
    Range: at most ‖gamma‖² + ‖b‖². Training statistics; over several batches the first term is
    averaged with the sizes of the batches as weights.
    """
    outputs, gamma, bias = _outputs(layer, inputs, batch_size)
    left = outputs.square().sum(1).mean()
    right = bias.square().sum()
    scale = right + gamma.square().sum()
    for batch in _batches(inputs, batch_size):
        variance = batch.var(0, correction=0)
        # Without eps the layer also returns 0/0 for a constant coordinate.
        term = (gamma.square() * variance / (variance + layer.eps)).sum()
        right = right + term * (len(batch) / len(inputs))
        # The rounding error of a variance grows with the size of the coordinate.
        noise = gamma.square() * batch.square().mean(0) / (variance + layer.eps)
        scale = scale + noise.sum() * (len(batch) / len(inputs))
    return Inequality(left.numpy(), "==", right.numpy(), tolerance=ROUNDING * float(scale))


def _batches(inputs: Tensor, batch_size: int | None) -> tuple[Tensor, ...]:
    """Return the rows in float64, split into batches; the last one may be shorter."""
    rows = inputs.double()
    return rows.split(len(rows) if batch_size is None else batch_size)


@torch.no_grad()
def _outputs(
    layer: nn.BatchNorm1d, inputs: Tensor, batch_size: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the outputs of a batch norm layer in training mode, its gamma and its b."""
    twin = copy.deepcopy(layer).double().train()
    outputs = torch.cat([twin(batch) for batch in _batches(inputs, batch_size)])
    return outputs, twin.weight.detach(), twin.bias.detach()


def _layer(scale: Tensor, *, eps: float) -> nn.BatchNorm1d:
    layer = nn.BatchNorm1d(len(scale), eps=eps, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(scale)
    return layer


def _scale_of_batch_norm(preset: str) -> Numbers:
    generator = torch.Generator().manual_seed(1)
    layer = _layer(torch.linspace(0.25, 3.0, 6), eps=1e-300)
    with torch.no_grad():
        layer.bias.copy_(torch.randn(6, generator=generator))
        rows = torch.randn(200, 6, generator=generator, dtype=torch.float64)
        out = layer(5 * rows - 2)
    deviation = out.std(0, correction=0)
    twice = _layer(torch.tensor([2.0]), eps=1.0)  # scale 2, shift 3, variance 1
    with torch.no_grad():
        twice.bias.fill_(3.0)
    both = batch_norm_mean_square(twice, torch.tensor([[0.0], [2.0]]))
    return {
        **hand_error(both, 2**2 / 2 + 3**2, 2**2 / 2 + 3**2),
        "mean_error": max_abs((out.mean(0) - layer.bias).detach().numpy()),
        "deviation_error": max_abs((deviation - layer.weight).detach().numpy()),
        "variance_error": max_abs((deviation.square() - layer.weight).detach().numpy()),
    }


@claim(
    "pan2023/sec-2.2-batch-norm",
    Kind.DEFINITION,
    r"Batch norm centres and scales every coordinate; its parameters $\gamma$ and $b$ are the "
    "variance and the mean that the outputs shall have.",
    "pan2023, Sec. 2.2 “trainable parameters that represent the desired variance and mean”",
    gather=_scale_of_batch_norm,
    code="nclab_papers.pan2023.setting.batch_norm_mean_square",
)
@with_hand_check
def scale(numbers: Numbers) -> Finding:
    evidence = describe(
        "the bias is the mean (error {mean_error}) and the scale the standard deviation (error "
        "{deviation_error}), not the variance (error {variance_error})",
        numbers,
    )
    if numbers["variance_error"] <= EXACT:
        return Finding(Verdict.HOLDS, evidence, numbers)
    right = numbers["mean_error"] <= EXACT and numbers["deviation_error"] <= EXACT
    return Finding(Verdict.CORRECTED if right else Verdict.REFUTED, evidence, numbers)


def _batch_norm(preset: str) -> Numbers:
    generator = torch.Generator().manual_seed(2)
    ideal, practice, exact = [], [], []
    for trial in range(LAYERS[preset]):
        rows = torch.randn(50, 8, generator=generator, dtype=torch.float64)
        rows = rows * 10 ** (2 * torch.rand(8, generator=generator, dtype=torch.float64) - 1)
        scale = torch.rand(8, generator=generator, dtype=torch.float64) + 0.5
        usual = _layer(scale, eps=1e-5)
        ideal.append(batch_norm_rms_printed(_layer(scale, eps=1e-300), rows, batch_size=17))
        dead = rows.clone()
        dead[:, trial % 8] = 1.0  # a unit that ReLU has switched off
        practice.append(batch_norm_rms_printed(usual, dead))
        exact += [batch_norm_mean_square(usual, data, batch_size=17) for data in (rows, dead)]
    both = batch_norm_rms_printed(
        _layer(torch.tensor([3.0, 4.0]), eps=1e-300), torch.tensor([[0.0, 1.0], [6.0, 2.0]])
    )
    return {
        "ideal": tally(*ideal),
        "practice": tally(*practice),
        "exact": tally(*exact),
        **hand_error(both, 5.0, 5.0),
    }


@claim(
    "pan2023/prop-2.2.1",
    Kind.PROPOSITION,
    "After batch norm without bias the root mean square norm of the features is the norm of its "
    r"scale $\gamma$.",
    "pan2023, Prop. 2.2.1 “a set of feature vectors immediately after Batch Normalization”",
    gather=_batch_norm,
    code="nclab_papers.pan2023.setting.batch_norm_rms_printed",
)
@with_hand_check
def batch_norm(numbers: Numbers) -> Finding:
    """Judge batch norm as defined, without eps; the evidence also reports layers with eps."""
    ideal = judge_statement(numbers["ideal"], enough=20)
    exact = judge_statement(numbers["exact"], enough=20)
    evidence = (
        f"batch norm as defined: {ideal.evidence}; real layers have an eps, which the thesis "
        f"omits, and constant units: with eps 1e-5 and one constant unit the statement "
        f"{describe_tally(numbers['practice'])}, while sum gamma^2 sigma^2/(sigma^2 + eps) + |b|^2 "
        f"is the mean square of any layer: {exact.evidence}"
    )
    right = ideal.verdict is Verdict.HOLDS and exact.verdict is Verdict.HOLDS
    return holds_if(right, evidence, numbers)


@statement(
    "pan2023/eq-2.1",
    Kind.EQUATION,
    r"With weight decay $\lambda$ on the last layer and its batch norm, the total loss is the "
    r"cross-entropy plus $\frac{\lambda}{2}(C\beta^2 + \alpha^2)$, where $\alpha$ is the root "
    "mean square feature norm.",
    "pan2023, Eq. (2.1) “total regularized loss for the layer-peeled model without the bias terms”",
    regularised_optimum,
    judge=judge_if(
        lambda numbers: (
            numbers["root_error"] <= EXACT and numbers["lowest"] >= numbers["optimum"] * (1 - EXACT)
        ),
        "for {networks} batch norm layers, the penalties on parameters and on features agree "
        "with relative error {root_error} ({printed_error} if alpha were the mean square); the "
        "smallest total loss of these and of networks around the optimum is {lowest}, the closed "
        "form gives {optimum}",
    ),
    figure="pan2023_norms",
)
def total_loss(preset: str) -> Numbers:
    """Compare the penalty on the parameters of batch norm with the penalty on its features."""
    generator = torch.Generator().manual_seed(3)
    classes, decay = 4, 1e-2
    rooted: list[float] = []
    unrooted: list[float] = []
    totals: list[float] = []
    for _ in range(LAYERS[preset]):
        rows = torch.randn(4 * classes, 6, generator=generator, dtype=torch.float64)
        scale = torch.rand(6, generator=generator, dtype=torch.float64) + 0.5
        layer = _layer(scale, eps=1e-300)
        W = torch.randn(classes, 6, generator=generator, dtype=torch.float64).numpy()
        H = layer(rows).detach().numpy().reshape(classes, 4, 6)
        loss = float(sample_losses(W, H).mean())
        total = loss + decay / 2 * (float(scale.square().sum()) + float((W**2).sum()))
        alpha, beta = _norms(W, H)
        totals.append(total)
        for errors, value in ((rooted, alpha), (unrooted, alpha**2)):
            penalty = decay / 2 * (classes * beta**2 + value**2)
            errors.append(abs(loss + penalty - total) / total)
    optimum = regularised_optimum(classes, decay)
    frame = simplex_etf(classes, classes).numpy()
    W, H = optimum.beta * frame, optimum.alpha * frame[:, None]
    penalty = decay / 2 * (classes * optimum.beta**2 + optimum.alpha**2)
    steps = np.linspace(0.8, 1.25, 46)  # other norms, and no other product than 0.64 to 1.5625
    nearby = [
        float(sample_losses(a * W, b * H).mean())
        + decay / 2 * (classes * (a * optimum.beta) ** 2 + (b * optimum.alpha) ** 2)
        for a in steps
        for b in steps
    ]
    return {
        "root_error": max(rooted),
        "printed_error": max(unrooted),
        "networks": len(totals),
        "lowest": min(*totals, *nearby),
        "optimum": optimum.objective,
        "hand_error": relative_error(
            (optimum.objective, float(sample_losses(W, H).mean()) + penalty),
            (optimum.optimal_loss, float(sample_losses(W, H).mean())),
            (optimum.product, optimum.alpha * optimum.beta),
        ),
    }


@statement(
    "pan2023/sec-2.2-bias",
    Kind.REMARK,
    "A network with a bias is one without whose features have an extra 1 and whose weight "
    "vectors an extra dimension.",
    "pan2023, Sec. 2.2 “equivalent to appending an extra 1 to each feature vector”",
    g,
    judge=judge_if(
        lambda numbers: numbers["logit_error"] <= EXACT,
        "the logits agree (error {logit_error}); the theorem then uses the norms with the "
        "coordinate: alpha^2 is larger by {alpha_square_rise}, beta^2 by {beta_square_rise}, and m "
        "is {optimal_loss_appended} instead of {optimal_loss}",
    ),
)
def bias(preset: str) -> Numbers:
    """Measure how norms and the smallest loss change if the bias becomes a coordinate of W.

    The logits must stay the same.
    """
    rng = np.random.default_rng(4)
    classes = 4
    [W], [H] = networks(rng, 1, classes, 5)
    b = rng.normal(size=classes)
    wide_W = np.concatenate([W, b[:, None]], axis=1)
    wide_H = np.concatenate([H, np.ones((*H.shape[:-1], 1))], axis=-1)
    error = max_abs(wide_H @ wide_W.T - (H @ W.T + b))
    alpha, beta = _norms(W, H)
    wide_alpha, wide_beta = _norms(wide_W, wide_H)
    frame = simplex_etf(classes, classes).numpy()
    best = [
        float(sample_losses(b * frame, a * frame[:, None]).mean())
        for a, b in ((alpha, beta), (wide_alpha, wide_beta))
    ]
    losses = [g(alpha * beta, classes), g(wide_alpha * wide_beta, classes)]
    return {
        "hand_error": relative_error((losses, best)),
        "logit_error": error,
        "alpha_square_rise": wide_alpha**2 - alpha**2,
        "beta_square_rise": wide_beta**2 - beta**2,
        "optimal_loss": float(losses[0]),
        "optimal_loss_appended": float(losses[1]),
    }


def _norms(W: FloatArray, H: FloatArray) -> tuple[float, float]:
    return math.sqrt(float(np.square(H).sum(-1).mean())), math.sqrt(float((W**2).sum()) / len(W))
