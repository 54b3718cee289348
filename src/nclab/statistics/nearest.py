"""Nearest class means and nearest mean directions of rows, decided exactly as in float64.

Two products N x d x C in float64 would decide everything. Most rows need neither: one product in
float32 gives scores with a known error bound, and a lead above twice this bound is a proof. The
same product serves the directions, because the mean unit vector is nearly parallel to the class
mean, and the norm of the difference bounds its effect. Only rows within the bounds are decided in
float64. Rows so close to their class mean that no other mean can be nearer need no product at all,
see `certain_radii`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.statistics.blocks import CPU_BLOCK
from nclab.statistics.moments import ClassMoments
from nclab.statistics.norms import outside, unit_rows
from nclab.statistics.sums import ROUNDING

SCREENED_SIZE = 2**20
"""Multiplications of a batch from which float32 scores are computed first."""
UNIT = 2.0**-24
"""Half a unit in the last place of float32."""
EPS = torch.finfo(torch.float64).eps
"""One unit in the last place of float64."""
TINY, LARGE = 2.0**-120, 2.0**100
"""Bounds within which no product of float32 scores vanishes or overflows."""
ROWS_PER_CLASS = 8
"""Rows per class from which products of all pairs of classes save more time than they cost."""
CLASS_BLOCK = 512
"""Number of classes that are compared with all later classes at a time."""
DISTANCE_MARGIN, ANGLE_MARGIN = 1e-6, 1e-4
"""Safety margins of distances (relative) and of angles (radians), far above float64 rounding."""


class CentredRows(NamedTuple):
    """Rows h of a block, and their quantities relative to the centre g of the class means."""

    rows: Tensor
    """(B, d) h, in the type of the input."""
    centred: Tensor
    """(B, d) h - g in float32."""
    reach: Tensor
    """(B,) |h - g|."""
    norm: Tensor
    """(B,) |h|."""
    along: Tensor
    """(B,) inner products of h - g and g."""

    @classmethod
    def around(
        cls, centre: Tensor, rows: Tensor, reach: Tensor, *, compiled: bool
    ) -> "CentredRows":
        """Compute the quantities of rows whose distances |h - g| to the centre are known."""
        if not compiled:
            centred = rows - centre
            norm = torch.linalg.vector_norm(rows.double(), dim=1)
            return cls(rows, centred.float(), reach, norm, centred @ centre)
        from nclab.statistics.kernel import centre_rows

        centred = torch.empty(rows.shape, dtype=torch.float32)
        norm, along = torch.empty(2, len(rows), dtype=torch.float64)
        centre_rows(*(tensor.numpy() for tensor in (rows, centre, centred, norm, along)))
        return cls(rows, centred, reach, norm, along)

    def select(self, index: Tensor) -> "CentredRows":
        """Return the rows with these indices."""
        return CentredRows(*(tensor[index] for tensor in self))


class Centres:
    """Class means and mean directions, prepared for comparison with rows."""

    def __init__(self, moments: ClassMoments) -> None:
        self.means = moments.means
        self.centre = moments.global_mean
        self.centred_means = moments.centred_means
        self.half_squares = 0.5 * moments.centred_means.square().sum(1)
        self.longest = float((2 * self.half_squares.max()).sqrt())
        units = moments.unit_means
        undirected = torch.linalg.vector_norm(units, dim=1, keepdim=True) <= ROUNDING
        self.directions = unit_rows(units.masked_fill(undirected, 0.0), zero=0.0)
        self.undirected = (~self.directions.any(1)).nonzero().flatten()
        self.coincide = not bool(moments.centred_means.any())
        self._scores: _ClassScores | None = None

    def nearest(
        self, block: CentredRows, labels: Tensor, *, compiled: bool
    ) -> tuple[Tensor, Tensor]:
        """Return the (B,) nearest mean and the (B,) nearest direction; -1 for a zero vector.

        The labels serve as a first guess and do not change the result.
        """
        by_mean, by_angle = torch.empty_like(labels), torch.empty_like(labels)
        size, dim = self.means.shape
        undecided_mean = undecided_angle = torch.arange(len(labels), device=labels.device)
        if len(labels) * dim * size >= SCREENED_SIZE and self.may_screen():
            self._scores = self._scores or _ClassScores(self)
            undecided_mean, undecided_angle = self._scores.decide(
                block, labels, by_mean=by_mean, by_angle=by_angle, compiled=compiled
            )
        step = max(128, CPU_BLOCK // max(dim, size))
        for index in _split(undecided_mean, step):
            by_mean[index] = self.nearest_mean(block.rows[index].double())
        for index in _split(undecided_angle, step):
            by_angle[index] = self._nearest_direction(block.rows[index].double())
        return by_mean, by_angle

    def may_screen(self) -> bool:
        """Whether the error bounds of float32 products hold here.

        They do not hold for accelerators that replace float32 by shorter types.
        """
        full_precision = (
            self.means.device.type == "cpu" and torch.get_float32_matmul_precision() == "highest"
        )
        bounded = len(self.means) >= 2 and self.means.shape[1] * UNIT < 0.01
        return full_precision and bounded and not self.coincide

    def _nearest_direction(self, block: Tensor) -> Tensor:
        if outside(torch.linalg.vector_norm(block, dim=1)) is not None:
            block = unit_rows(block, zero=0.0)  # Products of tiny numbers would lose digits.
        scores = block @ self.directions.T
        if len(self.undirected):
            scores[:, self.undirected] = -torch.inf
        return scores.argmax(1).masked_fill_(~block.any(1), -1)

    def nearest_mean(self, block: Tensor) -> Tensor:
        """Return the (B,) nearest class mean of float64 rows.

        Inner products decide where their rounding allows it, distances decide the other rows.
        """
        centred = block - self.centre
        # Distances from the centre of the means: an offset of all features costs no digits.
        scores = torch.addmm(-self.half_squares, centred, self.centred_means.T)
        best, nearest = scores.max(1)
        if self.coincide:
            return nearest
        reach = torch.linalg.vector_norm(centred, dim=1)
        error = 4 * block.shape[1] * EPS * self.longest * (reach + self.longest)
        runner_up = scores.scatter_(1, nearest[:, None], -torch.inf).amax(1)
        undecided = (runner_up >= best - error).nonzero().flatten()
        scores.scatter_(1, nearest[:, None], best[:, None])
        for rows in undecided.split(256):
            pairs = (scores[rows] >= (best - error)[rows, None]).nonzero()
            distances = scores.new_full((len(rows), scores.shape[1]), torch.inf)
            for part in pairs.split(4096):
                gaps = block[rows[part[:, 0]]] - self.means[part[:, 1]]
                distances[part[:, 0], part[:, 1]] = torch.linalg.vector_norm(gaps, dim=1)
            nearest[rows] = distances.argmin(1)
        return nearest


class _ClassScores:
    r"""Scores in float32 with bounds on their errors.

    With x = h - g and a_c = m_c - g the nearest mean has the largest s_c = <x, a_c> - |a_c|^2 / 2.
    The nearest direction u_c has the largest <h, u_c> = <x, u_c> + <g, u_c>. For any w,

    $$u_c = q_c a_c + p_c g + w + e_c,\quad
      \langle h, u_c\rangle = q_c s_c + p_c\langle x, g\rangle + k_c + \langle x, e_c\rangle
      + \langle x, w\rangle$$

    where the last term is equal for all classes, and |<x, e_c>| <= |x| |e_c|. Here q_c = 1 / |m_c|,
    so that e_c = 0 where u_c is the direction of the class mean.
    """

    def __init__(self, centres: Centres) -> None:
        means, centre, u = centres.centred_means, centres.centre, centres.directions
        self.dim, self.longest = means.shape[1], centres.longest
        self.largest = float(torch.linalg.vector_norm(centres.means, dim=1).max())
        self.means, self.offsets = means.float(), -centres.half_squares.float()
        q = torch.linalg.vector_norm(centres.means, dim=1).reciprocal()
        q = q.masked_fill(q.isinf(), 0.0)
        p = q - q.mean()
        remainder = torch.addcmul(u - q[:, None] * means, -p[:, None], centre)
        spare = torch.linalg.vector_norm(remainder - remainder.mean(0), dim=1)  # |e_c|
        centred_directions = u - u.mean(0)
        lift = centred_directions @ centre
        k = lift + q * centres.half_squares
        self.widest = float(torch.linalg.vector_norm(centred_directions, dim=1).max())
        self.sizes = [float(values.abs().max()) for values in (q, p, k, spare, lift)]
        lift[centres.undirected] = k[centres.undirected] = -torch.inf
        self.directions, self.lift = centred_directions.float(), lift.float()
        self.tail = torch.stack([q, k, p, spare]).float()

    def decide(
        self,
        block: CentredRows,
        labels: Tensor,
        by_mean: Tensor,
        by_angle: Tensor,
        *,
        compiled: bool,
    ) -> tuple[Tensor, Tensor]:
        """Decide rows by float32 where this is a proof; return the undecided rows of both kinds.

        The largest score is searched for only where it is not the score of the label.
        """
        scores = torch.addmm(self.offsets, block.centred, self.means.T)
        rounding = block.norm * self.longest + self.largest * (block.reach + self.longest)
        error = self._error(block, self.longest, self.longest, 8 * EPS * rounding)
        leads = self._leads if compiled else self._leads_in_torch
        lead, lead_by_angle = leads(scores, block, labels)
        by_mean.copy_(labels)
        undecided_mean = (~(lead > 2 * error)).nonzero().flatten()
        if len(undecided_mean):
            winner, proved = _winners(scores[undecided_mean], 2 * error[undecided_mean])
            by_mean[undecided_mean] = winner
            undecided_mean = undecided_mean[~proved]
        by_angle.copy_(labels)
        proved = (lead_by_angle > self._slack_by_angle(block, error)) & (block.norm > 0)
        undecided_angle = (~proved).nonzero().flatten()
        if len(undecided_angle):
            block = block.select(undecided_angle)
            scores = torch.addmm(self.lift, block.centred, self.directions.T)
            offset = self.sizes[-1] / max(self.widest, TINY)
            error = self._error(block, self.widest, offset, 8 * self.dim * EPS * block.norm)
            winner, proved = _winners(scores, 2 * error)
            by_angle[undecided_angle] = winner
            undecided_angle = undecided_angle[~(proved & (block.norm > 0))]
        return undecided_mean, undecided_angle

    def _error(self, block: CentredRows, longest: float, offset: float, rounding: Tensor) -> Tensor:
        """Return (B,) error bounds of <x, v_c> + t_c for |v_c| <= longest, |t_c| <= longest offset.

        A dot product of d numbers in any order is off by d / (1 - d UNIT) units. Storing x, v and
        t adds three units and the sum adds one. `rounding` is the error of the float64 inputs.
        """
        size = longest * (block.reach + offset)
        error = 1.1 * (self.dim + 8) * UNIT * size + rounding + self.dim * TINY * (1 + size)
        return error.masked_fill_((size > LARGE) | (block.reach > LARGE), torch.inf)

    def _slack_by_angle(self, block: CentredRows, error: Tensor) -> Tensor:
        """Return (B,) bounds on the rounding of the label's lead by angle, from its terms."""
        q, p, k, spare, _ = self.sizes
        terms = q * self.longest * (block.reach + self.longest) + p * block.along.abs() + k
        terms = terms + spare * block.reach
        rounding = 8 * self.dim * EPS * block.norm
        slack = 2 * (q * error + 16 * UNIT * terms + self.dim * TINY + rounding)
        if max(self.sizes) > LARGE:  # float32 cannot hold the inverse of such small means.
            return slack.fill_(torch.inf)
        return slack.masked_fill_(terms > LARGE, torch.inf)

    def _leads(self, scores: Tensor, block: CentredRows, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the (B,) leads of the labels by score and by lower bounds on angles; compiled."""
        from nclab.statistics.kernel import leads_of_labels

        lead, lead_by_angle = torch.empty(2, len(labels))
        inputs = (scores, labels, self.tail, block.along.float(), block.reach.float())
        leads_of_labels(*(tensor.numpy() for tensor in (*inputs, lead, lead_by_angle)))
        return lead, lead_by_angle

    def _leads_in_torch(
        self, scores: Tensor, block: CentredRows, labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the leads of `_leads`, computed by torch."""
        q, k, p, spare = self.tail
        upper = torch.addcmul(k, scores, q)
        upper.addmm_(torch.stack([block.along, block.reach], 1).float(), torch.stack([p, spare]))
        lead, label_scores = _lead(scores, labels)
        scores.scatter_(1, labels[:, None], label_scores)
        return lead, _lead(upper, labels)[0] - 2 * block.reach.float() * spare[labels]


def _split(index: Tensor, step: int) -> Sequence[Tensor]:
    return index.split(step) if len(index) else ()


def _lead(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the (B,) lead of each label's score over all others, and the (B, 1) score itself."""
    label_scores = scores.gather(1, labels[:, None])
    others = scores.scatter_(1, labels[:, None], -torch.inf).amax(1)
    return label_scores[:, 0] - others, label_scores


def _winners(scores: Tensor, slack: Tensor) -> tuple[Tensor, Tensor]:
    """Return the (B,) class of the largest score, and whether it leads by more than `slack`."""
    best, classes = scores.topk(2)
    return classes[:, 0], best[:, 0] - best[:, 1] > slack


def certain_radii(centres: Centres, rows: int) -> Tensor:
    r"""Return (C,) radii around the class means within which the nearest mean is proved.

    A row closer to its class mean than the radius is nearest to this mean and to its direction.
    By the triangle inequality, half the distance to the nearest other mean is such a radius. For
    directions: with |h - m| < |m| the angle of h and m is at most asin(|h - m| / |m|), and h is
    nearest to u_c if its angle with u_c is less than half the angle between u_c and the nearest
    other direction:

    $$\arcsin\frac{|h-m|}{|m|} + \angle(m, u_c) < \tfrac12\min_j\angle(u_c, u_j)$$

    Inner products are computed in float32 and corrected by a bound on their error. A radius of 0
    proves nothing. All radii are 0 if computing them costs more than it saves for `rows` rows.

    Costs a float32 GEMM C x d x C, as half of two products.
    """
    size, dim = centres.means.shape
    saves_time = rows >= ROWS_PER_CLASS * size and rows * dim * size >= SCREENED_SIZE
    if not centres.may_screen() or not saves_time:
        return centres.means.new_zeros(size)
    # d products and their sum, storing both factors and the offsets, two more sums of size 2.
    error = 1.1 * (dim + 16) * UNIT + dim * TINY
    scaled = centres.centred_means / centres.longest
    offsets = 0.5 * scaled.square().sum(1)
    score = _largest_other_product(scaled, offsets) + error  # >= -distance^2 / 2
    half_distance = 0.5 * centres.longest * (-2 * score).clamp_min_(0.0).sqrt_()
    norms = torch.linalg.vector_norm(centres.means, dim=1)
    by_mean = (1 - DISTANCE_MARGIN) * half_distance - 64 * EPS * norms.max()
    cosines = _largest_other_product(centres.directions, torch.zeros_like(norms)) + error
    gaps = centres.directions - centres.means / norms.masked_fill(norms == 0, 1.0)[:, None]
    tilt = 2 * (0.5 * torch.linalg.vector_norm(gaps, dim=1)).clamp_max_(1.0).asin_()
    angle = 0.5 * cosines.clamp_(-1.0, 1.0).acos_() - tilt - ANGLE_MARGIN
    by_direction = norms * angle.clamp_min_(0.0).sin_()
    return torch.minimum(by_mean, by_direction).clamp_min_(0.0)


def _largest_other_product(rows: Tensor, offsets: Tensor) -> Tensor:
    """Return, for each i, the largest <r_i, r_j> - o_i - o_j over all other j, from float32."""
    rows, offsets = rows.float(), offsets.float()
    largest = torch.full_like(offsets, -torch.inf)
    for start in range(0, len(rows), CLASS_BLOCK):
        block = slice(start, start + CLASS_BLOCK)
        products = torch.addmm(-offsets[start:], rows[block], rows[start:].T)
        products.sub_(offsets[block, None]).fill_diagonal_(-torch.inf)
        largest[block] = torch.maximum(largest[block], products.amax(1))
        largest[start:] = torch.maximum(largest[start:], products.amax(0))
    return largest.double()
