"""The metrics of one pass for classes that are dealt out over ranks.

Numbers per class are gathered, d x d sums added up, and for what compares pairs the blocks of
classes go round in a ring: no rank ever holds C x d numbers.
"""

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from nclab.errors import DataError
from nclab.metrics.closest import ClosestPairs
from nclab.metrics.cosine import intra_cosine, mean_off_diagonal
from nclab.metrics.cross_entropy import alpha, optimal_loss
from nclab.metrics.nc1_variability import ratio, trace_pinv, within_trace
from nclab.metrics.nc2_simplex_etf import norm_variation
from nclab.metrics.nc3_self_duality import duality_gaps
from nclab.metrics.pairs import (
    TILE,
    Deviation,
    NormalisedVariance,
    PairReducer,
    PairTile,
    tile_places,
)
from nclab.metrics.rows import centred_by, cosines, simplex_cosine
from nclab.statistics import ShardedMoments
from nclab.statistics.norms import unit_rows
from nclab.statistics.ranks import Ranks

MAX = dist.ReduceOp.MAX


def sharded_metrics(moments: ShardedMoments, weight: Tensor | None = None) -> dict[str, float]:
    """Every one-pass metric of features, and with the classifier's rows what compares them.

    Names and numbers are those of `nclab.measure(..., second_pass=False)`; classes without samples
    are left out as by `allow_missing`, and what is then not defined is missing. All ranks call it
    and get the same. `weight` is (C, d), or the rows of `moments.own_classes` alone.

    Costs C / P x C / 2 x d multiplications for each rank and each of means, mean unit features and
    classifier; of each about C d / 2 numbers come in, in P / 2 messages. Memory beside the moments
    about 8 C d / P numbers.

    >>> moments = ShardedMoments(num_classes=2, dim=2)
    >>> moments.update([[2.0, 0.0], [4.0, 0.0], [-2.0, 1.0], [-4.0, -1.0]], [0, 0, 1, 1])
    >>> found = sharded_metrics(moments)
    >>> round(found["nc1_trace_ratio"], 12), round(found["cdnv"], 12)
    (0.166666666667, 0.041666666667)
    """
    ranks = moments.ranks
    part = _Part(moments)
    joint = part.joint
    if joint.num_classes < 2:
        raise DataError(f"Expected samples of at least 2 classes, got {joint.num_classes}.")
    intra = ranks.gather_rows(part.intra)
    norms = ranks.gather_rows(torch.linalg.vector_norm(part.centred, dim=1))
    between = float(norms.square().sum()) / joint.num_classes
    angles, distances = _mean_pairs(part, directed=bool(norms.all()))
    values = {
        "min_intra": float(intra.min()),
        "mean_intra": float(intra.mean()),
        "max_inter": _largest_inter(part),
        "mean_inter": mean_off_diagonal(ranks.reduce_(part.units.sum(0)), intra),
        "nc1_trace_ratio": ratio(within_trace(joint), between),
        "cdnv": distances,
        "nc2_norm_variation_means": norm_variation(norms),
        "nc2_equiangularity_means": angles.mean_absolute,
        "nc2_cosine_std_means": angles.standard_deviation,
        "alpha": alpha(joint),
    }
    if moments.own.has_scatter:
        joint.within_scatter = ranks.reduce_(part.within_scatter)
        factor = torch.linalg.qr(part.centred, mode="r").R  # of all ranks: those of the means
        values["nc1_trace_pinv"] = trace_pinv(ranks.gather_rows(factor), joint)
    if weight is not None:
        values |= _beside_weights(moments, part, weight, values["alpha"])
    return {name: value for name, value in values.items() if not math.isnan(value)}


class _Part:
    """What this rank knows of its classes that have samples, and of all classes together."""

    def __init__(self, moments: ShardedMoments) -> None:
        ranks = self.ranks = moments.ranks
        own, self.classes = moments.present()
        empty = not len(self.classes)
        nothing = own.counts.new_zeros(0, dtype=torch.float64)
        none = nothing.new_zeros(0, own.dim)
        self.means, self.units = (none, none) if empty else (own.means, own.unit_means)
        self.variances = nothing if empty else own.variances
        self.intra = nothing if empty else intra_cosine(own)
        counts = ranks.gather_rows(own.counts)
        self.centre = ranks.reduce_(self.means.sum(0)) / len(counts)
        squares = nothing if empty else own.mean_square_norms
        self.size = ranks.reduce_(
            none.new_zeros(1) if empty else squares.amax().sqrt().reshape(1), MAX
        )
        unit = ranks.reduce_(self.means.new_tensor([own.unit]), MAX)
        self.centred = centred_by(self.means, self.centre, self.size)
        scatter = none.new_zeros(own.dim, own.dim) if own.has_scatter else none
        self.within_scatter = own.within_scatter if own.has_scatter and not empty else scatter
        # The part of ClassMoments that is small enough for every rank, under the same names.
        self.joint: Any = SimpleNamespace(
            num_classes=len(counts),
            dim=own.dim,
            counts=counts,
            total=int(counts.sum()),
            variances=ranks.gather_rows(self.variances),
            mean_square_norms=ranks.gather_rows(squares),
            size=float(self.size),
            unit=float(unit),
        )


def _mean_pairs(part: _Part, *, directed: bool) -> tuple[Deviation, float]:
    """The angles of the centred means, and cdnv."""
    angles = Deviation(simplex_cosine(part.joint.num_classes) if directed else math.nan)
    own = torch.cat([part.means, part.variances[:, None]], 1)
    found = own.new_zeros(1, 2)
    for other in _ring(part.ranks, own):
        both = own if other is None else torch.cat([own, other])
        means, variances = both[:, :-1], both[:, -1]
        centred = centred_by(means, part.centre, part.size)
        distances = NormalisedVariance(torch.linalg.vector_norm(centred, dim=1), means, variances)
        _reduce(unit_rows(centred, zero=0.0), len(own), other is None, angles, distances)
        found += found.new_tensor([distances.total, distances.pairs])
    total, pairs = part.ranks.gather_rows(found).sum(0).tolist()
    return _joined(part.ranks, angles), total / pairs


def _largest_inter(part: _Part) -> float:
    """The largest cosine of two classes."""
    largest = ClosestPairs(1)
    for other in _ring(part.ranks, part.units):
        both = part.units if other is None else torch.cat([part.units, other])
        _reduce(both, len(part.units), other is None, largest)
    return float(part.ranks.reduce_(part.units.new_tensor([largest.floor]), MAX))


def _beside_weights(
    moments: ShardedMoments, part: _Part, weight: Tensor, norm: float
) -> dict[str, float]:
    """NC2 of the classifier, NC3, and what the norms allow."""
    ranks, own = part.ranks, moments.own_classes
    if len(weight) not in (moments.num_classes, len(own)) or weight.shape[1:] != (moments.dim,):
        raise DataError(
            f"Expected weight of shape ({moments.num_classes}, {moments.dim}), or the "
            f"{len(own)} rows of the own classes, got {tuple(weight.shape)}."
        )
    rows = weight.detach().to(part.means)
    if len(rows) == moments.num_classes:
        rows = rows[own.start : own.stop]
    size = moments.num_classes
    lengths = torch.linalg.vector_norm(rows, dim=1)
    total = ranks.reduce_(rows.sum(0))
    centred = centred_by(rows, total / size, ranks.reduce_(lengths.max().reshape(1), MAX))
    frobenius = float(ranks.reduce_(lengths.square().sum().reshape(1)).sqrt())
    angles = Deviation(simplex_cosine(size))
    directions = unit_rows(centred)
    for other in _ring(ranks, directions):
        both = directions if other is None else torch.cat([directions, other])
        _reduce(both, len(directions), other is None, angles)
    angles = _joined(ranks, angles)
    values = {
        "nc2_norm_variation_weights": norm_variation(
            ranks.gather_rows(torch.linalg.vector_norm(centred, dim=1))
        ),
        "nc2_equiangularity_weights": angles.mean_absolute,
        "nc2_cosine_std_weights": angles.standard_deviation,
        "nc0_weight_mean": ratio(float(total.norm()), math.sqrt(size) * frobenius),
        "beta": frobenius / math.sqrt(size),
    }
    there = part.classes - own.start
    mine, centred = rows[there], centred[there]
    alignment = ranks.gather_rows(cosines(centred, part.means))
    squares = torch.stack([mine.square().sum(), part.centred.square().sum()])
    lengths = ranks.reduce_(squares).sqrt()
    gap = mine / lengths[0] - part.centred / lengths[1]
    values |= {
        "nc3_self_duality": float(ranks.gather_rows(duality_gaps(part.centred, centred)).mean()),
        "nc3_alignment_min": float(alignment.min()),
        "nc3_alignment_mean": float(alignment.mean()),
        "nc3_frobenius": float(ranks.reduce_(gap.square().sum().reshape(1))),
        "unc3_duality": float(ranks.gather_rows(cosines(mine, part.centred)).var(correction=0)),
    }
    if part.joint.num_classes == size:
        values["optimal_loss"] = optimal_loss(size, norm * values["beta"])
    return values


def _ring(ranks: Ranks, own: Tensor) -> Iterator[Tensor | None]:
    """First None, for the own block with itself, then blocks of others: all pairs of ranks once.

    In step s rank r gets the block of rank r + s, so that half a round shows every pair.
    """
    yield None
    if ranks.size == 1:
        return
    rows = ranks.gather([len(own)]).flatten().tolist()
    sent = own.to(ranks.wire(own.device)).contiguous()
    for step in range(1, ranks.size // 2 + 1):
        source, target = (ranks.rank + step) % ranks.size, (ranks.rank - step) % ranks.size
        # Opposite ranks of an even ring meet twice: the lower one of them takes the pair.
        halfway = 2 * step == ranks.size
        takes = not halfway or ranks.rank < step
        gives = not halfway or ranks.rank >= step
        found = sent.new_empty(rows[source], sent.shape[1])
        moves = []
        if gives and len(sent):
            moves.append(dist.P2POp(dist.isend, sent, group=ranks.group, group_peer=target))
        if takes and len(found):
            moves.append(dist.P2POp(dist.irecv, found, group=ranks.group, group_peer=source))
        with ranks.joint():
            for move in dist.batch_isend_irecv(moves) if moves else []:
                move.wait()
        if takes and len(found):
            yield found.to(own.device)


def _reduce(vectors: Tensor, own: int, alone: bool, *reducers: PairReducer) -> None:
    """Show pairs of the own rows, or of an own row and one of those behind them."""
    for rows, cols in tile_places(own) if alone else _beside(own, len(vectors)):
        tile = PairTile(rows, cols, vectors[rows] @ vectors[cols].T)
        for reducer in reducers:
            reducer.update(tile)


def _beside(own: int, total: int) -> Iterator[tuple[slice, slice]]:
    """Tiles of the own rows and those behind them."""
    for start in range(0, own, TILE):
        for left in range(own, total, TILE):
            yield slice(start, min(start + TILE, own)), slice(left, min(left + TILE, total))


def _joined(ranks: Ranks, own: Deviation) -> Deviation:
    """The moments of all pairs from those that each rank has seen."""
    state = [[own.pairs, own.absolute_sum, own.mean, own.centred_squares]]
    pairs, absolute, means, squares = ranks.gather_rows(torch.tensor(state, dtype=torch.float64)).T
    mean = float((pairs * means).sum() / pairs.sum())
    spread = float((squares + pairs * (means - mean).square()).sum())
    return Deviation(own.ideal, int(pairs.sum()), float(absolute.sum()), mean, spread)
