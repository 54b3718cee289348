"""Upper bound on the inter-class cosine of any two classes, proved by duality.

A search finds the largest cosine of two class means at a given loss. The problem does not change
if the two classes are swapped or the other classes are permuted, so the search is limited to
networks with these symmetries. Such a network is described by 24 numbers, 12 for the weights and 12
for the features: four for what the two classes have in common, four for what the other classes have
in common, two for the difference of the two classes, and two for the differences between the other
classes. Every logit, squared norm and inner product is a quadratic form of these numbers.

The proof then uses duality, and is valid even if the search did not find the optimum.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from nclab.metrics.cross_entropy import optimal_loss
from nclab.theory.certificates.norms_and_loss import NormsAndLoss
from nclab.theory.layer_peeled import FloatArray

STARTS = 6
POLISH = 12


@dataclass(frozen=True)
class MeanCosineProof:
    """Proof by duality that two class means with a cosine of at least `cosine` need more loss.

    Let G be the gradient of the loss at some logits, and B the matrix with <B, Q> >= 0 for every
    Gram matrix Q of class means in which a pair has at least this cosine. The multipliers mu_w,
    mu_h and xi >= 0 make the matrix [[mu_w I, G/2], [G^T/2, mu_h I - xi B]] positive semidefinite.
    It follows that the loss is at least `loss_lower`; see docs/certificates.md.
    """

    cosine: float
    """Bound v <= 0: the cosine of any two class means is below v."""
    loss_lower: float
    """Lower bound on the loss of networks that reach the cosine; at least the given loss."""
    mu_weights: float
    mu_features: float
    xi: float
    logits: tuple[float, ...]
    """Logits z11, z12, zr1, z1r, zrr, zrq at which the loss is linearised. In z_jc, j is the row
    and c the class of the sample: 1 and 2 are the pair, r and q two other classes."""


class WorstPair:
    """Networks that are symmetric under the permutations that keep a pair of classes.

    The first 12 coordinates describe the weights: 4 what the pair has in common, 4 what the other
    classes have in common, 2 the difference of the pair, and 2 the differences between the other
    classes. The last 12 describe the features in the same order.
    """

    def __init__(self, num_classes: int, product: float) -> None:
        self.classes, self.product = num_classes, product
        others = num_classes - 2
        self.others, self.free = others, max(num_classes - 3, 0)
        cross = 1 / math.sqrt(2 * others) if others else 0.0
        per = 1 / others if others else 0.0
        self.forms = np.stack(
            [
                _form(((0, 4, 12, 0.5), (8, 2, 20, 0.5))),  # z11
                _form(((0, 4, 12, 0.5), (8, 2, 20, -0.5))),  # z12
                _form(((4, 4, 12, cross),)),  # zr1
                _form(((0, 4, 16, cross),)),  # z1r
                _form(((4, 4, 16, per), (10, 2, 22, self.free * per))),  # zrr
                _form(((4, 4, 16, per), (10, 2, 22, -per))),  # zrq
            ]
        )
        weights = np.array([1.0] * 10 + [float(self.free)] * 2)
        weights[4:8] *= 1.0 if others else 0.0
        self.norm_w = np.concatenate([weights, np.zeros(12)])
        self.norm_h = np.concatenate([np.zeros(12), weights])
        self.pair, self.sign, self.etf = np.zeros((3, 24))
        self.pair[12:16] = self.sign[20:22] = 1.0
        scale = math.sqrt(product * num_classes / (num_classes - 1))
        for half in (0, 12):
            # Centring has rank one on the common coordinates and keeps the differences.
            self.etf[half] = scale * math.sqrt(others / num_classes)
            self.etf[half + 4] = -scale * math.sqrt(2 / num_classes)
            self.etf[half + 8] = scale
            self.etf[half + 10] = scale

    def starts(self, relative: float) -> Iterator[FloatArray]:
        rng = np.random.default_rng(0)
        scale = math.sqrt(self.product)
        for index in range(STARTS):
            noise = min(0.3, (1 + index) * 0.3 * math.sqrt(relative))
            yield self.etf + noise * scale * rng.normal(size=24)

    def loss_at(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Return the loss of a network, and its gradient with respect to the 24 coordinates."""
        rows = self.forms @ x  # (6, 24)
        loss, slope = self.loss(rows @ x)
        return loss, 2 * slope @ rows

    def loss(self, z: FloatArray) -> tuple[float, FloatArray]:
        """Return the mean loss for the six logits of a symmetric network, and its gradient."""
        z11, z12, zr1, z1r, zrr, zrq = z.tolist()
        loss1, swap, other = _cross_entropy(z12 - z11, 1, zr1 - z11, self.others)
        loss2, pair, peer = _cross_entropy(z1r - zrr, 2, zrq - zrr, self.free)
        share1, share2 = 2 / self.classes, self.others / self.classes
        slope1 = [share1 * part for part in (-(swap + other), swap, other)]
        slope2 = [share2 * part for part in (pair, -(pair + peer), peer)]
        return share1 * loss1 + share2 * loss2, np.array(slope1 + slope2)

    def cosine(self, x: FloatArray) -> float:
        pair, sign = self.pair @ x**2, self.sign @ x**2
        return float((pair - sign) / (pair + sign))

    def cosine_slope(self, x: FloatArray) -> FloatArray:
        pair, sign = self.pair @ x**2, self.sign @ x**2
        return 4 * x * (self.pair * sign - self.sign * pair) / (pair + sign) ** 2

    def worst(self, start: FloatArray, excess: float) -> FloatArray:
        """Return the network with the largest cosine that a search from `start` finds.

        The norms stay within their bounds, and the loss is at most the optimal loss plus `excess`.
        """
        best = optimal_loss(self.classes, self.product)
        total, norms = self.classes * self.product, (self.norm_w, self.norm_h)
        # In units of the distance from the ETF that the excess allows, variables are of order one.
        unit = min(1.0, math.sqrt(excess / best))

        def at(y: FloatArray) -> FloatArray:
            return self.etf + unit * y

        def slack(y: FloatArray) -> FloatArray:
            x = at(y)
            of_norms = [(1 - norm @ x**2 / total) * best / excess for norm in norms]
            return np.array([(best + excess - self.loss_at(x)[0]) / excess, *of_norms])

        def slack_slope(y: FloatArray) -> FloatArray:
            x = at(y)
            of_norms = [-2 * norm * x / total * best / excess for norm in norms]
            return unit * np.stack([-self.loss_at(x)[1] / excess, *of_norms])

        result = minimize(
            lambda y: -self.cosine(at(y)) / unit,
            (start - self.etf) / unit,
            jac=lambda y: -self.cosine_slope(at(y)),
            constraints={"type": "ineq", "fun": slack, "jac": slack_slope},
            method="SLSQP",
            options={"maxiter": 100, "ftol": 1e-8},
        )
        return at(np.asarray(result.x))

    def reachable(self, x: FloatArray, excess: float) -> bool:
        """Whether norms and loss of a network are within their bounds, up to rounding."""
        total = self.classes * self.product * (1 + 1e-9)
        inside = self.norm_w @ x**2 <= total and self.norm_h @ x**2 <= total
        allowed = optimal_loss(self.classes, self.product) + excess
        return bool(inside and self.loss_at(x)[0] <= allowed * (1 + 1e-6))

    def prove(self, x: FloatArray, cosine: float, bias_norm: float) -> MeanCosineProof:
        """Return the proof of a lower bound on the loss if two class means reach this cosine.

        The bound is valid for any network `x`; it is almost exact if x is the worst network.
        """
        x, (mu_w, mu_h, xi) = self.polish(x, cosine)
        z = self.logits(x)
        value, slope = self.loss(z)
        total = self.classes * self.product
        shortfall = self.shortfall(slope, mu_w, mu_h, xi, cosine)
        mu_w, mu_h = mu_w + shortfall, mu_h + shortfall
        bias = bias_norm * self.row_sum_norm(slope)
        return MeanCosineProof(
            cosine=cosine,
            loss_lower=value - float(slope @ z) - float(mu_w + mu_h) * total - bias,
            mu_weights=float(mu_w),
            mu_features=float(mu_h),
            xi=float(xi),
            logits=tuple(float(logit) for logit in z),
        )

    def polish(self, x: FloatArray, cosine: float) -> tuple[FloatArray, FloatArray]:
        """Return the network of smallest loss at a given cosine, refined by Newton steps.

        Also return its Lagrange multipliers.
        """
        quadratics = np.stack(
            [self.norm_w, self.norm_h, -(self.pair * (1 - cosine) - self.sign * (1 + cosine)) / 2]
        )
        target = np.array([1.0, 1.0, 0.0]) * self.classes * self.product
        best, smallest = x, math.inf
        mu: FloatArray = np.zeros(3)
        multipliers: FloatArray = mu
        for step in range(POLISH):
            rows = self.forms @ x
            z = rows @ x
            _, slope = self.loss(z)
            size = float(np.abs(slope).max())
            columns = 2 * quadratics * x  # (3, 24)
            gradient = 2 * slope @ rows
            if step == 0:
                mu = np.asarray(np.linalg.lstsq(columns.T, -gradient, rcond=None)[0], float)
            residual = np.concatenate(
                [(gradient + mu @ columns) / size, quadratics @ x**2 - target]
            )
            if not float(np.linalg.norm(residual)) < smallest:
                break
            best, multipliers, smallest = x, mu, float(np.linalg.norm(residual))
            hessian = 2 * np.tensordot(slope, self.forms, 1) + 4 * rows.T @ self.hessian(z) @ rows
            penalised = hessian + 2 * np.diag(mu @ quadratics)
            system = np.block([[penalised / size, columns.T], [columns, np.zeros((3, 3))]])
            move = np.linalg.lstsq(system, -residual, rcond=1e-9)[0]
            x, mu = x + move[:24], mu + size * move[24:]
        return best, np.maximum(multipliers, 0.0)

    def hessian(self, z: FloatArray) -> FloatArray:
        """Return the (6, 6) Hessian of the loss with respect to the six logits."""
        total = np.zeros((6, 6))
        for share, correct, wrong, counts in (
            (2 / self.classes, 0, (1, 2), (1, self.others)),
            (self.others / self.classes, 4, (3, 5), (2, self.free)),
        ):
            margins = (z[list(wrong)] - z[correct]).tolist()
            probabilities = np.array(
                _cross_entropy(margins[0], counts[0], margins[1], counts[1])[1:]
            )
            spread = np.zeros((2, 6))
            spread[:, correct] = -1.0
            spread[0, wrong[0]] = spread[1, wrong[1]] = 1.0
            total += (
                share
                * spread.T
                @ (np.diag(probabilities) - np.outer(probabilities, probabilities))
                @ spread
            )
        return total

    def shortfall(
        self, slope: FloatArray, mu_w: float, mu_h: float, xi: float, cosine: float
    ) -> float:
        """Return what mu_w and mu_h lack to make the matrix of the proof positive semidefinite."""
        g11, g12, gr1, g1r, grr, grq = self.entries(slope)
        scale = math.sqrt(2 * self.others)
        trivial = np.array([[g11 + g12, scale * g1r], [scale * gr1, grr + self.free * grq]])
        aligned, opposed = xi * (1 - cosine) / 2, -xi * (1 + cosine) / 2
        blocks = [
            (trivial, np.diag([aligned, 0.0])),
            (np.array([[g11 - g12]]), np.array([[opposed]])),
        ]
        if self.free:
            blocks.append((np.array([[grr - grq]]), np.zeros((1, 1))))
        shortfall = 0.0
        for half, pulled in blocks:
            identity = np.eye(len(half))
            matrix = np.block([[mu_w * identity, half / 2], [half.T / 2, mu_h * identity - pulled]])
            rounding = 1e-15 * float(np.abs(matrix).max())
            shortfall = max(shortfall, rounding - float(np.linalg.eigvalsh(matrix)[0]))
        return shortfall

    def entries(self, slope: FloatArray) -> FloatArray:
        """Return the derivative with respect to a single logit, for each of six kinds of logits.

        `slope` holds the sums of the derivatives over all logits of a kind.
        """
        counts = np.array(
            [2, 2, 2 * self.others, 2 * self.others, self.others, self.others * self.free]
        )
        return slope / np.maximum(counts, 1)

    def row_sum_norm(self, slope: FloatArray) -> float:
        """Return the norm of the row sums of G, the largest effect of a bias of norm 1."""
        g11, g12, gr1, g1r, grr, grq = self.entries(slope)
        pair = g11 + g12 + self.others * g1r
        other = 2 * gr1 + grr + self.free * grq
        return math.sqrt(2 * pair**2 + self.others * other**2)

    def logits(self, x: FloatArray) -> FloatArray:
        return np.asarray(self.forms @ x @ x)


def _form(terms: tuple[tuple[int, int, int, float], ...]) -> FloatArray:
    """Return the matrix of a quadratic form: a sum of factor times inner product of two ranges."""
    matrix = np.zeros((24, 24))
    for left, length, right, factor in terms:
        for offset in range(length):
            matrix[left + offset, right + offset] += factor / 2
            matrix[right + offset, left + offset] += factor / 2
    return matrix


def _cross_entropy(
    first: float, first_count: int, second: float, second_count: int
) -> tuple[float, float, float]:
    """Return log(1 + sum of count * exp(margin)) for two margins, and its two derivatives."""
    if not second_count:
        second = first
    top = max(0.0, first, second)
    part1, part2 = first_count * math.exp(first - top), second_count * math.exp(second - top)
    wrong = part1 + part2
    total = math.exp(-top) + wrong
    loss = math.log1p(wrong) if top == 0 else top + math.log(total)
    return loss, part1 / total, part2 / total


INFLATIONS = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 2.0, 8.0, 32.0)
"""Relative increases of the excess loss. nclab searches for the worst network at a slightly larger
loss, so that the proved lower bound, despite rounding, reaches the given loss. The large values
are needed with a bias, or if the excess loss is below rounding."""

SMALLEST = 1e-290
"""Smallest optimal loss for which the search stays within the range of floats."""


def mean_cosine_upper(inputs: NormsAndLoss) -> MeanCosineProof | None:
    r"""Return an upper bound on the cosine of two class means, with its proof.

    $$v^* = \max\cos(\tilde h_1,\tilde h_2)\ \text{s.t. loss} \le m+\varepsilon,\qquad
    L \ge f(Z)-\langle G,Z\rangle-(\mu_P+\mu_Q)\,C\alpha\beta$$

    $\tilde h_1$ and $\tilde h_2$ are the means of two classes, m the smallest loss that the norms
    allow, and $m+\varepsilon$ the given loss. f(Z) is the loss at the logits Z of the proof, G its
    gradient, and $\mu_P$, $\mu_Q$ are `mu_weights` and `mu_features`.

    Source: pan2023, Thm 2.3.1
    Range: [-1/(C-1), 0], or None if no cosine <= 0 can be proved.
    """
    if inputs.optimal_loss < SMALLEST:
        return None
    pair = WorstPair(inputs.num_classes, inputs.product)
    for start in pair.starts(inputs.excess / inputs.optimal_loss):
        point = start
        for inflation in INFLATIONS:
            excess = inputs.excess * (1 + inflation)
            point = pair.worst(point, excess)
            cosine = pair.cosine(point)
            if not cosine <= 0:
                if inflation == INFLATIONS[0] and pair.reachable(point, excess):
                    return None  # a network with this loss and a positive cosine exists
                break
            proof = pair.prove(point, cosine, inputs.bias_norm)
            if proof.loss_lower >= inputs.loss:
                return proof
    return None


def inter_from_means(cosine: float, alignment: float, intra: float) -> float:
    r"""Return an upper bound on the inter-class cosine from three other bounds.

    $$\mathrm{inter} \le \max(v, v\rho^2) + 2\sqrt{(\rho^{-2}-1)(1-\mathrm{intra})}$$

    v is the upper bound `cosine` on the cosine of two class means, $\rho$ the lower bound on the
    alignment, and intra the lower bound on the intra-class cosine.

    Source: pan2023, Lemma 2.4.6
    Range: [-1, inf). The printed lemma is corrected, see docs/certificates.md.
    """
    spread = math.sqrt(max(1 / alignment**2 - 1, 0.0) * max(1 - intra, 0.0))
    return max(cosine, cosine * alignment**2) + 2 * spread
