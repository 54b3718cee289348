"""Budget: the memory a measurement will use, planned and said before it is used.

Counted in arrays of C x d float64 numbers, which are nearly all of it where classes are many. What
is not counted: the data, the model and its activations, and the process itself.
"""

import math
import os
import re
import warnings
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from nclab.errors import DataError, NclabWarning
from nclab.statistics.blocks import MANY_CLASSES

MUCH = 2**30
"""From here on a plan is said."""
ABSURD = 10**14
"""From here on the labels are none, and whoever makes room for them says so."""
ROOM = 2**28
"""Slices of features, blocks and tiles."""
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
UNITS |= {f"{name}i": 2 ** (10 * power) for power, name in enumerate("kmgt", start=1)}

Memory = str | int | None
"""As "8GB", "512 MiB" or a number of bytes; None for what the machine has."""


def as_bytes(memory: Memory) -> int | None:
    """What a caller means by an amount of memory.

    >>> as_bytes("8GB"), as_bytes("1.5 GiB"), as_bytes(None)
    (8000000000, 1610612736, None)
    """
    if memory is None or (isinstance(memory, int) and not isinstance(memory, bool) and memory > 0):
        return memory
    found = re.fullmatch(r"\s*(\d+\.?\d*)\s*([kmgt]i?|)b?\s*", str(memory).lower())
    if found is None or isinstance(memory, bool) or not float(found[1]):
        raise DataError(
            f"Expected memory such as '8GB', '512MiB' or a number of bytes, got {memory!r}."
        )
    return int(float(found[1]) * UNITS[found[2]])


class Sizes(NamedTuple):
    """What a plan depends on."""

    classes: int
    dim: int
    head: bool = False
    scatter: bool = True
    second_pass: bool = True
    missing: bool = False
    """Whether classes without samples are left out, by a copy of the others."""
    directional: bool = False
    """Whether a metric asks for an array of all pairs of classes."""
    beside: int = 0
    """Bytes of what was asked for beside the measurement."""

    def parts(self) -> dict[str, int]:
        """Bytes by what they are for; `work` is used again and again.

        >>> sum(Sizes(100_000, 768, second_pass=False).parts().values()) // 10**6
        5278
        """
        one, square = 8 * self.classes * self.dim, 8 * self.dim * self.dim
        many = self.classes > MANY_CLASSES
        block = 128 * self.classes * 8  # scores or logits of some rows
        work = (2 * one + 18 * square) if many else 4 * one
        if self.head:
            work = max(work, 4 * one)
        if self.second_pass:
            work = max(work, 3 * one + 4 * block)
        parts = {"class sums": 3 * one + (2 * square if self.scatter else 0)}
        parts["class means"] = 3 * one
        if self.missing:
            parts["without absent classes"] = 6 * one
        if self.second_pass:
            parts["second pass"] = 3 * one
        if self.head:
            parts["classifier"] = 2 * one + 2 * block
        if self.directional:
            parts["pairs of classes"] = 3 * 8 * self.classes**2
        if self.beside:
            parts["error bars and null"] = self.beside
        return {**parts, "work": work + ROOM}


@dataclass
class Budget:
    """What a measurement may use, and what it has planned for by now."""

    limit: int | None
    second_pass: bool = True
    missing: bool = False
    planned: dict[Any, Sizes] = field(default_factory=dict)
    """By layer."""

    def plan(self, layer: Any, sizes: Sizes, *, elsewhere: int = 0) -> int:
        """Count in a layer; says what all of them take, and refuses what does not fit.

        `elsewhere` is what other processes take. Returns the bytes planned.
        """
        sizes = sizes._replace(second_pass=self.second_pass, missing=self.missing)
        self.planned[layer] = sizes
        parts = _together([one.parts() for one in self.planned.values()])
        if elsewhere:
            parts["other processes"] = elsewhere
        needed = sum(parts.values())
        what = f"{sizes.classes} classes in dimension {sizes.dim}"
        if len(self.planned) > 1:
            what += f" and {len(self.planned) - 1} layers more"
        listed = ", ".join(f"{name} {_gb(size)}" for name, size in parts.items())
        if self.limit is not None and needed > self.limit:
            raise DataError(
                f"Expected a plan within memory {_gb(self.limit)} GB, got {_gb(needed)} GB for "
                f"{what} ({listed}). {self._instead(needed, elsewhere)}"
            )
        if self.limit is None and machine_memory() < needed < ABSURD:
            raise DataError(
                f"Expected a plan within the {_gb(machine_memory())} GB of this machine, got "
                f"{_gb(needed)} GB for {what} ({listed}). Check the labels; to try it nevertheless "
                f"pass memory={_asked(needed)}."
            )
        if MUCH <= needed < ABSURD:
            line = f"Plans {_gb(needed)} GB of memory for {what}: {listed}."
            warnings.warn(line, NclabWarning, stacklevel=4)
        return needed

    def left(self) -> int | None:
        """Bytes of the limit that nothing is planned for."""
        if self.limit is None:
            return None
        parts = _together([one.parts() for one in self.planned.values()])
        return max(0, self.limit - sum(parts.values()))

    def _instead(self, needed: int, elsewhere: int) -> str:
        """What would fit, or what would be needed."""
        changes: dict[str, dict[str, Any]] = {
            "metrics='default'": {"directional": False},
            "leaving out intervals, null and reference": {"beside": 0},
            "second_pass=False (--one-pass)": {"second_pass": False},
        }
        fitting, words = dict[str, Any](), list[str]()
        if elsewhere and needed - elsewhere <= (self.limit or 0):
            return f"workers=0 takes {_gb(needed - elsewhere)} GB."
        for word, change in changes.items():
            if all(
                getattr(one, key) == value for key, value in change.items() for one in self._all
            ):
                continue
            fitting |= change
            words.append(word)
            smaller = [one._replace(**fitting).parts() for one in self._all]
            size = sum(_together(smaller).values())
            if size <= (self.limit or 0):
                return (
                    f"{' and '.join(words)} takes {_gb(size)} GB; or pass memory={_asked(needed)}."
                )
        return f"Pass memory={_asked(needed)}, or measure fewer classes or layers."

    @property
    def _all(self) -> list[Sizes]:
        return list(self.planned.values())


@cache
def machine_memory() -> float:
    """Bytes of this machine; infinite where the system does not tell."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not on Windows
        return math.inf


def _together(plans: list[dict[str, int]]) -> dict[str, int]:
    """What several layers keep, and the most that one of them works with."""
    total: dict[str, int] = {}
    for parts in plans:
        for name, size in parts.items():
            before = total.pop(name, 0)
            total[name] = max(before, size) if name == "work" else before + size
    return total


def _gb(size: float) -> str:
    return f"{size / 1e9:.3g}"


def _asked(size: int) -> str:
    """An amount to pass that is enough."""
    return f"'{size / 1e9 + 0.05:.1f}GB'"


def worker_bytes(sizes: Sizes, workers: int) -> int:
    """What so many processes beside this one take, and what is sent between them and this one.

    Each keeps its class sums and sends them; the second pass takes the sums of all to each, where
    its means and products are. The sums of groups of samples are kept and sent as well. Nothing
    for none.
    """
    one = 8 * sizes.classes * sizes.dim
    alone = sizes._replace(scatter=True, missing=False)
    each = sum(alone.parts().values()) if sizes.second_pass else 3 * one + ROOM + sizes.beside
    return workers * (each + 6 * one + sizes.beside)


def reference_bytes(classes: int, dim: int) -> int:
    """What a look at the class means of other data takes."""
    return 5 * 8 * classes * dim
