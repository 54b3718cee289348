"""Centres: which class mean, and which mean direction, is nearest to a row.

Two products N x d x C in float64 decide it. Most rows need none of them: one product in float32
gives scores that are off by no more than a bound, and a lead beyond twice the bound is proof. The
same product serves directions: that of the mean unit vector is nearly that of the class mean, and
what is left of it is bounded by its norm. Rows within the bounds are decided in float64. Those so
near to their class mean that nothing can be nearer need no product at all, see `balls.py`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nclab.statistics.blocks import CPU_BLOCK
from nclab.statistics.moments import ClassMoments
from nclab.statistics.norms import outside, unit_rows
from nclab.statistics.sums import ROUNDING

SCREENED = 2**20
"""Multiplications of a batch from which on it is screened in float32."""
UNIT = 2.0**-24
"""Half a unit in the last place of float32."""
EPS = torch.finfo(torch.float64).eps
TINY, LARGE = 2.0**-120, 2.0**100
"""Float32 scores are trusted where no product can vanish or overflow."""


class Seen(NamedTuple):
    """Rows h of a block, and what is known of them beside the centre g of the class means."""

    rows: Tensor
    """(B, d) as they came."""
    centred: Tensor
    """(B, d) h - g in float32."""
    reach: Tensor
    """(B,) |h - g|."""
    norm: Tensor
    """(B,) |h|."""
    along: Tensor
    """(B,) inner products of h - g and g."""

    @classmethod
    def beside(cls, centre: Tensor, rows: Tensor, reach: Tensor, *, compiled: bool) -> "Seen":
        """Of rows whose |h - g| is known."""
        if not compiled:
            centred = rows - centre
            norm = torch.linalg.vector_norm(rows.double(), dim=1)
            return cls(rows, centred.float(), reach, norm, centred @ centre)
        from nclab.statistics.kernel import centre_rows

        centred = torch.empty(rows.shape, dtype=torch.float32)
        norm, along = torch.empty(2, len(rows), dtype=torch.float64)
        centre_rows(*(part.numpy() for part in (rows, centre, centred, norm, along)))
        return cls(rows, centred, reach, norm, along)

    def some(self, places: Tensor) -> "Seen":
        """Those of some rows."""
        return Seen(*(part[places] for part in self))


class Centres:
    """Class means and mean directions, ready to be compared with rows."""

    def __init__(self, moments: ClassMoments) -> None:
        self.means = moments.means
        self.centre = moments.global_mean
        self.centred_means = moments.centred_means
        self.half_squares = 0.5 * moments.centred_means.square().sum(1)
        self.longest = float((2 * self.half_squares.max()).sqrt())
        units = moments.unit_means
        alone = torch.linalg.vector_norm(units, dim=1, keepdim=True) <= ROUNDING
        self.directions = unit_rows(units.masked_fill(alone, 0.0), zero=0.0)
        self.undirected = (~self.directions.any(1)).nonzero().flatten()
        self.coincide = not bool(moments.centred_means.any())
        self._screen: _Screen | None = None

    def nearest(self, seen: Seen, own: Tensor, *, compiled: bool) -> tuple[Tensor, Tensor]:
        """(B,) the nearest mean and the nearest direction; for a zero vector -1, it has none.

        `own` is a guess, the class of the row.
        """
        by_mean, by_angle = torch.empty_like(own), torch.empty_like(own)
        size, dim = self.means.shape
        open_mean = open_angle = torch.arange(len(own), device=own.device)
        if len(own) * dim * size >= SCREENED and self.may_screen():
            self._screen = self._screen or _Screen(self)
            found = {"by_mean": by_mean, "by_angle": by_angle}
            open_mean, open_angle = self._screen.decide(seen, own, **found, compiled=compiled)
        step = max(128, CPU_BLOCK // max(dim, size))
        for places in _parts(open_mean, step):
            block = seen.rows[places].double()
            by_mean[places] = self.nearest_mean(block)
        for places in _parts(open_angle, step):
            by_angle[places] = self._nearest_direction(seen.rows[places].double())
        return by_mean, by_angle

    def may_screen(self) -> bool:
        """Only where a float32 product is one: not with the shortcuts of accelerators."""
        plain = (
            self.means.device.type == "cpu" and torch.get_float32_matmul_precision() == "highest"
        )
        known = len(self.means) >= 2 and self.means.shape[1] * UNIT < 0.01
        return plain and known and not self.coincide

    def _nearest_direction(self, block: Tensor) -> Tensor:
        if outside(torch.linalg.vector_norm(block, dim=1)) is not None:
            block = unit_rows(block, zero=0.0)  # products of the smallest numbers have no digits
        scores = block @ self.directions.T
        if len(self.undirected):
            scores[:, self.undirected] = -torch.inf
        return scores.argmax(1).masked_fill_(~block.any(1), -1)

    def nearest_mean(self, block: Tensor) -> Tensor:
        """(B,) of float64 rows: by inner products where they are sure, else by the distances."""
        centred = block - self.centre
        # Distances are taken from the centre of the means: a common offset costs no digits.
        scores = torch.addmm(-self.half_squares, centred, self.centred_means.T)
        best, nearest = scores.max(1)
        if self.coincide:
            return nearest
        reach = torch.linalg.vector_norm(centred, dim=1)
        doubt = 4 * block.shape[1] * EPS * self.longest * (reach + self.longest)
        runner_up = scores.scatter_(1, nearest[:, None], -torch.inf).amax(1)
        unsure = (runner_up >= best - doubt).nonzero().flatten()
        scores.scatter_(1, nearest[:, None], best[:, None])
        for rows in unsure.split(256):
            pairs = (scores[rows] >= (best - doubt)[rows, None]).nonzero()
            distances = scores.new_full((len(rows), scores.shape[1]), torch.inf)
            for part in pairs.split(4096):
                gaps = block[rows[part[:, 0]]] - self.means[part[:, 1]]
                distances[part[:, 0], part[:, 1]] = torch.linalg.vector_norm(gaps, dim=1)
            nearest[rows] = distances.argmin(1)
        return nearest


class _Screen:
    r"""Scores in float32 with bounds on their errors.

    With x = h - g and a_c = m_c - g the nearest mean has the largest s_c = <x, a_c> - |a_c|^2 / 2.
    The nearest direction u_c has the largest <h, u_c> = <x, u_c> + <g, u_c>. For any w,

    $$u_c = q_c a_c + p_c g + w + e_c,\quad
      \langle h, u_c\rangle = q_c s_c + p_c\langle x, g\rangle + k_c + \langle x, e_c\rangle
      + \langle x, w\rangle$$

    where the last term is that of all classes, and |<x, e_c>| <= |x| |e_c|. Here q_c = 1 / |m_c|,
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
        rest = torch.addcmul(u - q[:, None] * means, -p[:, None], centre)
        spare = torch.linalg.vector_norm(rest - rest.mean(0), dim=1)
        turned = u - u.mean(0)
        lift = turned @ centre
        k = lift + q * centres.half_squares
        self.widest = float(torch.linalg.vector_norm(turned, dim=1).max())
        self.sizes = [float(part.abs().max()) for part in (q, p, k, spare, lift)]
        lift[centres.undirected] = k[centres.undirected] = -torch.inf
        self.directions, self.lift = turned.float(), lift.float()
        self.tail = torch.stack([q, k, p, spare]).float()

    def decide(
        self, seen: Seen, own: Tensor, by_mean: Tensor, by_angle: Tensor, *, compiled: bool
    ) -> tuple[Tensor, Tensor]:
        """Write down what is proved; returns the places of the rows still open for each.

        A largest score is looked for only where it is not that of the own class.
        """
        scores = torch.addmm(self.offsets, seen.centred, self.means.T)
        own_rounding = seen.norm * self.longest + self.largest * (seen.reach + self.longest)
        error = self._error(seen, self.longest, self.longest, 8 * EPS * own_rounding)
        lead, lead_by_angle = (self._leads if compiled else self._leads_in_torch)(scores, seen, own)
        by_mean.copy_(own)
        open_mean = (~(lead > 2 * error)).nonzero().flatten()
        if len(open_mean):
            winner, sure = _winners(scores[open_mean], 2 * error[open_mean])
            by_mean[open_mean] = winner
            open_mean = open_mean[~sure]
        by_angle.copy_(own)
        sure = (lead_by_angle > self._slack_by_angle(seen, error)) & (seen.norm > 0)
        open_angle = (~sure).nonzero().flatten()
        if len(open_angle):
            seen = seen.some(open_angle)
            scores = torch.addmm(self.lift, seen.centred, self.directions.T)
            offset = self.sizes[-1] / max(self.widest, TINY)
            error = self._error(seen, self.widest, offset, 8 * self.dim * EPS * seen.norm)
            winner, sure = _winners(scores, 2 * error)
            by_angle[open_angle] = winner
            open_angle = open_angle[~(sure & (seen.norm > 0))]
        return open_mean, open_angle

    def _error(self, seen: Seen, longest: float, offset: float, own: Tensor) -> Tensor:
        """(B,) bounds on the error of <x, v_c> + t_c for |v_c| <= longest, |t_c| <= longest offset.

        A dot product of d numbers in any order is off by d / (1 - d UNIT) units, storing x, v and
        t adds three, the sum one; `own` is the rounding of the float64 numbers behind them.
        """
        size = longest * (seen.reach + offset)
        error = 1.1 * (self.dim + 8) * UNIT * size + own + self.dim * TINY * (1 + size)
        return error.masked_fill_((size > LARGE) | (seen.reach > LARGE), torch.inf)

    def _slack_by_angle(self, seen: Seen, error: Tensor) -> Tensor:
        """(B,) what rounding can do to the lead of the own direction, by the sizes of its terms."""
        q, p, k, spare, _ = self.sizes
        terms = q * self.longest * (seen.reach + self.longest) + p * seen.along.abs() + k
        terms = terms + spare * seen.reach
        own = 8 * self.dim * EPS * seen.norm
        slack = 2 * (q * error + 16 * UNIT * terms + self.dim * TINY + own)
        if max(self.sizes) > LARGE:  # means so small that float32 does not hold their inverse
            return slack.fill_(torch.inf)
        return slack.masked_fill_(terms > LARGE, torch.inf)

    def _leads(self, scores: Tensor, seen: Seen, own: Tensor) -> tuple[Tensor, Tensor]:
        """(B,) by how much the own class leads: by scores, and surely by angle; compiled."""
        from nclab.statistics.kernel import lead_of_own

        lead, lead_by_angle = torch.empty(2, len(own))
        given = (scores, own, self.tail, seen.along.float(), seen.reach.float())
        lead_of_own(*(part.numpy() for part in (*given, lead, lead_by_angle)))
        return lead, lead_by_angle

    def _leads_in_torch(self, scores: Tensor, seen: Seen, own: Tensor) -> tuple[Tensor, Tensor]:
        """The same in torch."""
        q, k, p, spare = self.tail
        upper = torch.addcmul(k, scores, q)
        upper.addmm_(torch.stack([seen.along, seen.reach], 1).float(), torch.stack([p, spare]))
        lead, mine = _lead(scores, own)
        scores.scatter_(1, own[:, None], mine)
        return lead, _lead(upper, own)[0] - 2 * seen.reach.float() * spare[own]


def _parts(places: Tensor, step: int) -> Sequence[Tensor]:
    return places.split(step) if len(places) else ()


def _lead(scores: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """(B,) by how much each row's own score is above the best of the others, and (B, 1) itself."""
    mine = scores.gather(1, own[:, None])
    others = scores.scatter_(1, own[:, None], -torch.inf).amax(1)
    return mine[:, 0] - others, mine


def _winners(scores: Tensor, slack: Tensor) -> tuple[Tensor, Tensor]:
    """(B,) the class of the largest score, and whether it leads by more than `slack`."""
    best, place = scores.topk(2)
    return place[:, 0], best[:, 0] - best[:, 1] > slack
