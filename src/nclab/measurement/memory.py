"""Budget: the memory a measurement will use, planned before it is used.

The plan counts arrays of C x d float64 numbers, which take nearly all memory if there are many
classes. It does not count the data, the model and its activations, and the process.
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

ANNOUNCED = 2**30
"""Bytes from which a plan is announced by a warning."""
ABSURD = 10**14
"""Bytes from which the labels must be wrong, so that the check of the labels raises instead."""
WORKSPACE = 2**28
"""Bytes for slices of features, blocks and tiles."""
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
UNITS |= {f"{name}i": 2 ** (10 * power) for power, name in enumerate("kmgt", start=1)}

Memory = str | int | None
"""An amount such as "8GB" or "512 MiB" or a number of bytes; None for that of the machine."""


def as_bytes(memory: Memory) -> int | None:
    """Return an amount of memory in bytes.

    >>> as_bytes("8GB"), as_bytes("1.5 GiB"), as_bytes(None)
    (8000000000, 1610612736, None)
    """
    if memory is None or (isinstance(memory, int) and not isinstance(memory, bool) and memory > 0):
        return memory
    match = re.fullmatch(r"\s*(\d+\.?\d*)\s*([kmgt]i?|)b?\s*", str(memory).lower())
    if match is None or isinstance(memory, bool) or not float(match[1]):
        raise DataError(
            f"Expected memory such as '8GB', '512MiB' or a number of bytes, got {memory!r}."
        )
    return int(float(match[1]) * UNITS[match[2]])


class Sizes(NamedTuple):
    """The sizes and options on which the memory of one layer depends."""

    classes: int
    dim: int
    head: bool = False
    scatter: bool = True
    second_pass: bool = True
    missing: bool = False
    """Whether classes without samples are left out, which copies the other classes."""
    observers: int = 0
    """Bytes for intervals, shuffled labels and a reference."""

    def parts(self) -> dict[str, int]:
        """Return bytes by purpose; "work" is memory that is reused.

        >>> sum(Sizes(100_000, 768, second_pass=False).parts().values()) // 10**6
        5278
        """
        per_class, square = 8 * self.classes * self.dim, 8 * self.dim * self.dim
        many = self.classes > MANY_CLASSES
        block = 128 * self.classes * 8  # scores or logits of some rows
        work = (2 * per_class + 18 * square) if many else 4 * per_class
        if self.head:
            work = max(work, 4 * per_class)
        if self.second_pass:
            work = max(work, 3 * per_class + 4 * block)
        parts = {"class sums": 3 * per_class + (2 * square if self.scatter else 0)}
        parts["class means"] = 3 * per_class
        if self.missing:
            parts["without absent classes"] = 6 * per_class
        if self.second_pass:
            parts["second pass"] = 3 * per_class
        if self.head:
            parts["classifier"] = 2 * per_class + 2 * block
        if self.observers:
            parts["intervals and shuffled labels"] = self.observers
        return {**parts, "work": work + WORKSPACE}


REDUCTIONS: dict[str, dict[str, Any]] = {
    "without intervals, shuffled_labels and reference": {"observers": 0},
    "second_pass=False (--one-pass)": {"second_pass": False},
}
"""Option that reduces the memory -> what it changes in the sizes."""


@dataclass
class Budget:
    """The memory a measurement may use, and the plans of its layers."""

    limit: int | None
    planned: dict[Any, Sizes] = field(default_factory=dict)
    """Layer -> sizes."""

    def plan(self, layer: Any, sizes: Sizes, *, elsewhere: int = 0) -> int:
        """Add a layer and return the bytes planned for all layers; raise if they do not fit.

        A large plan is announced by a warning. `elsewhere` counts bytes of other processes.
        """
        self.planned[layer] = sizes
        parts = _combined([layer_sizes.parts() for layer_sizes in self.planned.values()])
        if elsewhere:
            parts["other processes"] = elsewhere
        needed = sum(parts.values())
        purpose = f"{sizes.classes} classes in dimension {sizes.dim}"
        if len(self.planned) > 1:
            purpose += f" and {len(self.planned) - 1} more layers"
        listed = ", ".join(f"{name} {_gb(size)}" for name, size in parts.items())
        if self.limit is not None and needed > self.limit:
            raise DataError(
                f"Expected a plan within memory {_gb(self.limit)} GB, got {_gb(needed)} GB for "
                f"{purpose} ({listed}). {self._advice(needed, elsewhere)}"
            )
        if self.limit is None and machine_memory() < needed < ABSURD:
            raise DataError(
                f"Expected a plan within the {_gb(machine_memory())} GB of this machine, got "
                f"{_gb(needed)} GB for {purpose} ({listed}). Check the labels; to try it "
                f"nevertheless pass memory={_amount(needed)}."
            )
        if ANNOUNCED <= needed < ABSURD:
            line = f"Plans {_gb(needed)} GB of memory for {purpose}: {listed}."
            warnings.warn(line, NclabWarning, stacklevel=4)
        return needed

    def left(self) -> int | None:
        """Return the bytes of the limit that are not planned; None without a limit."""
        if self.limit is None:
            return None
        parts = _combined([sizes.parts() for sizes in self.planned.values()])
        return max(0, self.limit - sum(parts.values()))

    def _advice(self, needed: int, elsewhere: int) -> str:
        """Return which options would fit the limit, or how much memory is needed."""
        limit = self.limit or 0
        if elsewhere and needed - elsewhere <= limit:
            return f"workers=0 takes {_gb(needed - elsewhere)} GB."
        changes, options = dict[str, Any](), list[str]()
        for option, change in REDUCTIONS.items():
            changed = [sizes._replace(**change) for sizes in self.planned.values()]
            if changed == list(self.planned.values()):
                continue
            changes |= change
            options.append(option)
            reduced = [sizes._replace(**changes).parts() for sizes in self.planned.values()]
            size = sum(_combined(reduced).values())
            if size <= limit:
                return (
                    f"{' and '.join(options)} takes {_gb(size)} GB; or pass "
                    f"memory={_amount(needed)}."
                )
        return f"Pass memory={_amount(needed)}, or measure fewer classes or layers."


@cache
def machine_memory() -> float:
    """Return the bytes of this machine; infinity if the system does not report them."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not on Windows
        return math.inf


def _combined(plans: list[dict[str, int]]) -> dict[str, int]:
    """Add up the plans of several layers, which share one workspace."""
    total: dict[str, int] = {}
    for parts in plans:
        for name, size in parts.items():
            before = total.pop(name, 0)
            total[name] = max(before, size) if name == "work" else before + size
    return total


def _gb(size: float) -> str:
    return f"{size / 1e9:.3g}"


def _amount(size: int) -> str:
    """Return an amount that is large enough, as a user would pass it."""
    return f"'{size / 1e9 + 0.05:.1f}GB'"


def worker_bytes(sizes: Sizes, workers: int) -> int:
    """Return the bytes of other processes, and of what they exchange with this one.

    Each process keeps its class sums and sends them. For the second pass each receives the sums of
    all and computes means and products. Sums of groups of samples are kept and sent as well.
    """
    per_class = 8 * sizes.classes * sizes.dim
    alone = sizes._replace(scatter=True, missing=False)
    if sizes.second_pass:
        each = sum(alone.parts().values())
    else:
        each = 3 * per_class + WORKSPACE + sizes.observers
    return workers * (each + 6 * per_class + sizes.observers)


def group_bytes(classes: int, dim: int, groups: int, *, scatter: bool) -> int:
    """Return the bytes that intervals need at most.

    These are two sets of groups of moments, and a second pass for each group.

    >>> group_bytes(10, 512, 10, scatter=True) // 10**6
    46
    """
    moments = 3 * classes * dim + (dim * dim if scatter else 0)
    return 8 * groups * (2 * moments + 4 * classes * dim)
