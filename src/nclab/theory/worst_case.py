"""Search for the worst case: the weights and features that are farthest from collapse.

The search is over all classifiers W and features H with ‖W‖_F² ≤ C αβ, mean ‖h‖² ≤ αβ (one can
scale to α = β) and mean loss ≤ m + excess, where m is the smallest loss that the norms allow. The
returned network satisfies these constraints, so no valid guarantee can be stronger than its cosine.
Averaging the features of a class lowers loss and norm, so only the classes whose cosine is searched
need several samples.

For a small excess loss, every start ends at the same cosine. For three or more samples per class
and an excess loss of the order of m, the search for the smallest intra-class cosine has many local
optima, so there may be a worse network than the returned one.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from nclab.errors import DataError
from nclab.metrics.nc2_simplex_etf import simplex_etf
from nclab.theory.layer_peeled import FloatArray, g
from nclab.theory.statements import norms, sample_losses, units

ITERATIONS = 1500
PRECISION = 1e-10
"""SLSQP stops when its objective, scaled to order one, changes by less than this."""
FEASIBLE = 1e-9
"""Norms and excess loss may exceed their bounds by this relative amount."""
ROOM = 1e-14
"""Relative distance kept between norms and their bounds, so that rounding cannot exceed them."""
SHORT = 1e-3
"""Norm of reversed samples, divided by the norm of the other samples. A reversed sample points
away from the classifier row of its class; some starting points have such samples in class 0."""
SCALES = tuple(1.1**power for power in range(-6, 7))
"""The search tries these factors for the feature norm and row norm of class 0, in starting points
where some features of class 0 point away from their classifier row."""
SMALLEST_NORM = 1e-150
"""Smaller norms are replaced by this number in divisions."""
SMALLEST_SHARE = 1e-6
"""Smallest ratio of excess loss to optimal loss. At this ratio, loss minus optimal loss still has
nine correct digits."""


@dataclass(frozen=True)
class WorstCaseProblem:
    """Constraints of a search for the worst case, and the classes that have several samples."""

    num_classes: int
    product: float
    excess: float
    per_class: int
    dim: int
    free: int
    """Number of classes with `per_class` samples, starting at class 0. The other classes have one
    sample with the same total weight."""
    labels: NDArray[np.intp]
    """Class of each row of H; a row is one feature vector."""
    weights: FloatArray
    """Weight of every feature in a mean over samples."""

    @property
    def lowest(self) -> float:
        """Optimal loss m."""
        return g(self.product, self.num_classes)

    @property
    def step(self) -> float:
        """Typical distance from the optimum at the allowed loss, divided by the optimum's norm."""
        return math.sqrt(self.excess / self.lowest)

    @property
    def size(self) -> int:
        return (self.num_classes + len(self.labels)) * self.dim

    def split(self, point: FloatArray) -> tuple[FloatArray, FloatArray]:
        rows = point.reshape(-1, self.dim)
        return rows[: self.num_classes], rows[self.num_classes :]

    def optimum(self) -> FloatArray:
        """Return the simplex ETF with the largest allowed norms."""
        frame = math.sqrt(self.product) * simplex_etf(self.num_classes, self.dim).numpy()
        return np.concatenate([frame, frame[self.labels]]).ravel()

    def excess_and_gradient(self, point: FloatArray) -> tuple[float, FloatArray]:
        """Return the excess loss, loss minus m, and its gradient."""
        W, H = self.split(point)
        rows = np.arange(len(H))
        logits = H @ W.T
        gaps = logits - logits[rows, self.labels][:, None]
        gaps[rows, self.labels] = -np.inf
        top = np.maximum(gaps.max(1), 0.0)
        exps = np.exp(gaps - top[:, None])
        others = exps.sum(1)
        total = others + np.exp(-top)
        # log1p keeps losses that log(sum) would round away.
        loss = np.where(top > 0, top + np.log(total), np.log1p(others))
        slopes = exps / total[:, None]
        slopes[rows, self.labels] = -others / total
        slopes *= self.weights[:, None]
        gradient = np.concatenate([slopes.T @ H, slopes @ W]).ravel()
        return float(self.weights @ loss) - self.lowest, gradient

    def fits(self, point: FloatArray) -> bool:
        return self.excess_and_gradient(point)[0] <= self.excess

    def norm_slack(self, point: FloatArray) -> FloatArray:
        """Return, for weights and features, 1 minus the squared norm divided by its bound."""
        W, H = self.split(point)
        squares = [np.square(W).sum() / self.num_classes, self.weights @ np.square(H).sum(1)]
        return 1 - np.array(squares) / self.product

    def norm_slack_gradient(self, point: FloatArray) -> FloatArray:
        """Return the gradients of the two numbers of `norm_slack` as rows."""
        W, H = self.split(point)
        none_w, none_h = np.zeros_like(W), np.zeros_like(H)
        of_w = np.concatenate([W / self.num_classes, none_h]).ravel()
        of_h = np.concatenate([none_w, self.weights[:, None] * H]).ravel()
        return np.stack([of_w, of_h]) * (-2 / self.product)

    def cosine_and_gradient(self, point: FloatArray) -> tuple[float, FloatArray]:
        """Return the cosine to minimise or maximise, and its gradient.

        It is the intra-class cosine of class 0 if only class 0 has several samples, and otherwise
        the inter-class cosine of classes 0 and 1.
        """
        H = self.split(point)[1]
        directions = units(H)
        lengths = np.maximum(norms(H), SMALLEST_NORM)
        gradient = np.zeros((self.num_classes + len(H), self.dim))
        count = self.per_class
        slices = [slice(c * count, (c + 1) * count) for c in range(self.free)]
        means = [directions[rows].mean(0) for rows in slices]
        for rows, other in zip(slices, reversed(means), strict=True):
            along = directions[rows] @ other
            across = (other - along[:, None] * directions[rows]) / lengths[rows, None]
            gradient[self.num_classes :][rows] = across * ((3 - self.free) / count)
        return float(means[0] @ means[-1]), gradient.ravel()


def make_problem(
    num_classes: int, product: float, excess: float, per_class: int, dim: int | None, free: int
) -> WorstCaseProblem:
    """Return the problem, or raise if its sizes or bounds are impossible."""
    size = num_classes + 1 if dim is None else dim
    if num_classes < 2 or per_class < 1 or size < num_classes - 1:
        raise DataError(
            f"Expected at least 2 classes, 1 sample per class and dimension C - 1 or more, "
            f"got num_classes={num_classes}, per_class={per_class} and dim={size}."
        )
    if not (0 < product < math.inf and 0 < excess < math.inf):
        raise DataError(
            f"Expected a positive product of norms and a positive excess, "
            f"got {product} and {excess}."
        )
    if excess < SMALLEST_SHARE * g(product, num_classes):
        raise DataError(
            f"Expected an excess of at least {SMALLEST_SHARE} times the optimal loss (which is "
            f"{g(product, num_classes):.3g}), got {excess}: a smaller excess is lost in rounding."
        )
    repeats = np.where(np.arange(num_classes) < free, per_class, 1)
    labels = np.repeat(np.arange(num_classes), repeats)
    weights = np.repeat(1 / (repeats * num_classes), repeats)
    return WorstCaseProblem(num_classes, product, excess, per_class, size, free, labels, weights)


@dataclass(frozen=True)
class WorstCase:
    """Worst weights and features that a search found, with their norms and loss."""

    value: float
    """The intra-class cosine of class 0, or the inter-class cosine of classes 0 and 1."""
    feasible: bool
    """Whether norms and excess loss exceed their bounds by at most 1e-9, relative to the bounds."""
    num_classes: int
    product: float
    excess: float
    weight: FloatArray
    """(C, d) classifier rows."""
    features: FloatArray
    """(C, N, d) features."""
    alpha: float
    beta: float
    loss: float
    start_values: tuple[float, ...]
    """Cosine found from every start; the worst one is `value`."""


def worst_intra(
    num_classes: int,
    product: float,
    excess: float,
    *,
    per_class: int = 2,
    dim: int | None = None,
    starts: int = 6,
    seed: int = 0,
) -> WorstCase:
    r"""Return the smallest intra-class cosine that a search finds for given norms and loss.

    $$\min_{W,H}\ \mathrm{intra}_1\quad\text{s.t.}\quad
      \tfrac1{CN}\sum\|h\|^2\le\alpha^2,\ \|W\|_F^2\le C\beta^2,\ L\le m+\varepsilon$$

    Source: pan2023, Thm 2.3.1 (its true worst case)
    Range: [0, 1]; no valid lower bound can be larger. 1 - intra = Θ(excess).

    Args:
        product: largest allowed product $\alpha\beta$.
        excess: largest allowed excess loss $\varepsilon$ above the smallest loss m.
        per_class: number N of samples of class 0.
        dim: dimension of the features; by default C + 1.
    """
    search = make_problem(num_classes, product, excess, per_class, dim, 1)
    return _solve(search, 1.0, starts, seed)


def worst_inter(
    num_classes: int,
    product: float,
    excess: float,
    *,
    per_class: int = 2,
    dim: int | None = None,
    starts: int = 6,
    seed: int = 0,
) -> WorstCase:
    r"""Return the largest inter-class cosine that a search finds for given norms and loss.

    $$\max_{W,H}\ \mathrm{inter}_{1,2}\quad\text{s.t.}\quad
      \tfrac1{CN}\sum\|h\|^2\le\alpha^2,\ \|W\|_F^2\le C\beta^2,\ L\le m+\varepsilon$$

    Source: pan2023, Thm 2.3.1 (its true worst case)
    Range: [-1/(C-1), 1]; no valid upper bound can be smaller. inter + 1/(C-1) = Θ(sqrt(excess)),
    for two classes Θ(excess).

    The arguments are those of `worst_intra`; classes 0 and 1 have N samples.
    """
    search = make_problem(num_classes, product, excess, per_class, dim, 2)
    return _solve(search, -1.0, starts, seed)


def _solve(search: WorstCaseProblem, sign: float, starts: int, seed: int) -> WorstCase:
    """Search from every start, move each end point into the constraints, return the worst one."""
    if starts < 1:
        raise DataError(f"Expected at least 1 start, got {starts}.")
    rng = np.random.default_rng(seed)
    points = []
    for index in range(starts):
        start = _start(search, index, rng)
        # Keep the start as well: a descent may end at a worse point than its start.
        candidates = [_repair(search, point) for point in (start, _descend(search, sign, start))]
        points.append(min(candidates, key=lambda end: sign * search.cosine_and_gradient(end)[0]))
    values = [search.cosine_and_gradient(point)[0] for point in points]
    worst = int(np.argmin(sign * np.array(values)))
    W, rows = search.split(points[worst])
    repeats = np.where(search.labels < search.free, 1, search.per_class)
    H = np.repeat(rows, repeats, axis=0).reshape(search.num_classes, search.per_class, search.dim)
    # Check feasibility on the returned arrays, not on the variables of the search.
    loss = float(sample_losses(W, H).mean())
    alpha = math.sqrt(float(np.square(H).sum(-1).mean()))
    beta = math.sqrt(float(np.square(W).sum()) / search.num_classes)
    within = alpha * beta <= search.product * (1 + FEASIBLE)
    feasible = within and loss - search.lowest <= search.excess * (1 + FEASIBLE)
    return WorstCase(
        value=values[worst],
        feasible=feasible,
        num_classes=search.num_classes,
        product=search.product,
        excess=search.excess,
        weight=W,
        features=H,
        alpha=alpha,
        beta=beta,
        loss=loss,
        start_values=tuple(values),
    )


def _start(search: WorstCaseProblem, index: int, rng: np.random.Generator) -> FloatArray:
    """Return a starting point of the search: the optimum with noise, or with reversed samples.

    If the allowed loss permits it, every second search for the smallest intra-class cosine starts
    from a class in which a few samples of small norm point away from the classifier row.
    """
    one_sample = math.log(search.num_classes) / (search.num_classes * search.per_class)
    # Below `one_sample`, one sample of norm zero already exceeds the allowed loss.
    affordable = search.per_class > 2 and search.lowest + search.excess > one_sample
    if index % 2 and search.free == 1 and affordable:
        reversed_samples = 1 + index // 2 % (search.per_class // 2)
        points = [_turned(search, reversed_samples, scale) for scale in SCALES]
        return min(points, key=lambda point: search.cosine_and_gradient(point)[0])
    noise = rng.normal(size=search.size) * math.sqrt(search.product / search.dim)
    return search.optimum() + search.step * 10 ** rng.uniform(-1.0, 0.0) * noise


def _turned(search: WorstCaseProblem, count: int, scale: float) -> FloatArray:
    """Return the optimum, changed so that class 0 has a few reversed samples of small norm.

    A reversed sample of small norm has a loss of about log C, and its unit vector is turned by 180
    degrees. For a large excess loss, this lowers the intra-class cosine more than any small
    deviation, and no descent from the optimum finds it. The other samples of class 0 are tilted
    around the classifier row as far as the loss allows, so that their mean keeps its direction.
    `scale` multiplies the norms of row and features of class 0.
    """
    W = search.split(search.optimum())[0]
    angles = 2 * math.pi * np.arange(search.per_class - count)[:, None] / (search.per_class - count)
    sides = math.sqrt(search.product) * np.linalg.svd(W)[2][-2:]
    sideways = np.cos(angles) * sides[-1] + np.sin(angles) * sides[0]

    def at_angle(share: float) -> FloatArray:
        point = search.optimum()
        weight, rows = search.split(point)
        angle = share * math.pi / 2
        rows[:count] = -SHORT * W[0]
        rows[count : search.per_class] = math.cos(angle) * W[0] + math.sin(angle) * sideways
        weight[0] *= scale
        rows[: search.per_class] *= scale
        return _at_full_norms(search, point)

    return at_angle(_largest(lambda share: search.fits(at_angle(share))))


def _descend(search: WorstCaseProblem, sign: float, start: FloatArray) -> FloatArray:
    """Return the end point of SLSQP, whose variables are scaled distances from the optimum."""
    centre = search.optimum()
    unit = search.step * math.sqrt(search.product)
    size = min(1.0, search.step**2) if search.free == 1 else min(1.0, search.step)

    def at(y: FloatArray) -> FloatArray:
        return centre + unit * y

    def objective(y: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = search.cosine_and_gradient(at(y))
        return sign * value / size, sign * unit / size * gradient

    def slack(y: FloatArray) -> FloatArray:
        over = search.excess_and_gradient(at(y))[0]
        return np.append(search.norm_slack(at(y)) / search.step, 1 - over / search.excess)

    def slack_gradient(y: FloatArray) -> FloatArray:
        of_loss = search.excess_and_gradient(at(y))[1] * (-unit / search.excess)
        of_norms = search.norm_slack_gradient(at(y)) * (unit / search.step)
        return np.vstack([of_norms, of_loss])

    result = minimize(
        objective,
        (start - centre) / unit,
        jac=True,
        method="SLSQP",
        constraints={"type": "ineq", "fun": slack, "jac": slack_gradient},
        options={"maxiter": ITERATIONS, "ftol": PRECISION},
    )
    return at(np.asarray(result.x))


def _repair(search: WorstCaseProblem, point: FloatArray) -> FloatArray:
    """Return a point of full norms, moved towards the optimum until its loss is allowed."""
    centre = search.optimum()

    def mixed(share: float) -> FloatArray:
        return _at_full_norms(search, centre + share * (point - centre))

    return mixed(_largest(lambda share: search.fits(mixed(share))))


def _at_full_norms(search: WorstCaseProblem, point: FloatArray) -> FloatArray:
    """Return W and H scaled to the allowed norms, minus a margin for rounding."""
    W, H = search.split(point)
    squares = np.maximum(1 - search.norm_slack(point), SMALLEST_NORM)
    of_w, of_h = (1 - ROOM) / np.sqrt(squares)
    return np.concatenate([of_w * W, of_h * H]).ravel()


def _largest(fits: Callable[[float], bool]) -> float:
    """Return the largest number in [0, 1] for which `fits` is true, by bisection.

    `fits` must be true for 0.
    """
    if fits(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
