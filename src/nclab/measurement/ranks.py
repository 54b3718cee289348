"""Joins what processes of torch.distributed have seen: exactly, and the same in each of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from nclab.errors import DataError
from nclab.measurement.asked import Asked
from nclab.measurement.layer_stream import LayerStream
from nclab.statistics import DirectionalSpread, SecondPass
from nclab.statistics.process_group import Group, ProcessGroup, is_distributed

GroupChoice = Group | Literal["own"]
"""Processes that each read a part of the data: a group, None for all, or this one alone."""

COMES, GIVES_UP = 1, -1


@dataclass(frozen=True)
class SharedData:
    """Each process of a group reads its own part of the data; all get the same statistics."""

    ranks: ProcessGroup

    @classmethod
    def over(cls, group: GroupChoice, asked: Asked | None = None) -> "SharedData | None":
        """With the others of the group, if there are any."""
        if isinstance(group, str):
            if group != "own":
                raise DataError(
                    f"Expected group= a process group, None for all processes or 'own' for this "
                    f"one alone, got {group!r}."
                )
            return None
        if not is_distributed(group):
            return None
        if asked is not None and (asked.groups or asked.null):
            raise DataError(
                "Expected one process for intervals and null, got several that share the data. "
                "Leave these two out, or measure all data in one process with group='own'."
            )
        return cls(ProcessGroup(group))

    def begin(self) -> None:
        """Before the first pass: all processes are here."""
        self.ranks.gather([COMES])

    def give_up(self) -> None:
        """Instead of what follows a pass: say that this process could not end it."""
        self.ranks.gather([GIVES_UP, 0, 0])

    def moments(self, streams: Sequence[LayerStream]) -> None:
        """Join moments and logits, after the first pass."""
        dims = [stream.moments.dim for stream in streams]
        self._agree(dims)
        group = self.ranks.group
        for stream in streams:
            if stream.num_classes is None:  # each process knows only the labels it has seen
                seen = self.ranks.gather([stream.moments.num_classes])
                stream.grow(int(seen.max()))
            stream.moments.all_reduce(group)
            self.ranks.reduce_(stream.nonfinite)
            if stream.against is not None:
                stream.against.all_reduce(group)
            if stream.logits is not None:
                stream.logits.all_reduce(group)

    def looks(self, streams: Sequence[LayerStream], *, complete: bool) -> bool:
        """Join the second passes, or drop them if one process could not take its own."""
        everywhere = bool(self._states([COMES, int(complete), 0])[:, 1].all())
        group = self.ranks.group
        for stream in streams:
            stream.look = (stream.look or SecondPass(stream.moments)) if everywhere else None
            if stream.look is not None:
                stream.look.all_reduce(group)
                if stream.rare is not None and stream.rare.scatter is not None:
                    self.ranks.reduce_(stream.rare.scatter)
            if stream.look is not None and stream.asked.extras.directional:
                stream.spread = stream.spread or DirectionalSpread(stream.moments)
                stream.spread.all_reduce(group)
        return everywhere

    def _agree(self, dims: Sequence[int]) -> None:
        """Refuse to merge unless every process has seen the same layers, and any."""
        sizes = self._states([COMES, len(dims), sum(dims)])
        if not bool((sizes == sizes[0]).all()) or not dims:
            without = [rank for rank, row in enumerate(sizes.tolist()) if not row[1]]
            what = f"processes {without} saw no batch" if without else "they measure other layers"
            raise DataError(
                f"Expected every process to measure the same layers, but {what}. Give each process "
                "batches of its own, and call the monitor in all of them."
            )

    def _states(self, own: Sequence[int]) -> torch.Tensor:
        """(ranks, 3) how each process ended its pass; refuses to go on where one gave up."""
        found = self.ranks.gather(own)
        gone = (found[:, 0] == GIVES_UP).nonzero().flatten().tolist()
        if gone:
            raise DataError(
                f"Expected every process to read its part of the data, but processes {gone} could "
                "not: their own messages say why."
            )
        return found
