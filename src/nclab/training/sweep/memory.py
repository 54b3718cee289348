"""Whether the models of a sweep fit into the memory of this machine, and how many into a cache."""

import os
from pathlib import Path

from nclab.errors import NclabError
from nclab.training.models.mlp import Shape

VECTORS = 4
"""Parameters and momenta, and a copy of both from the last epoch that ended well; Adam has more."""
BYTES = 4
"""Of a float32."""
MOST = 64
"""So many runs at most have their files open in one process."""
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
USUAL = 2**21
"""A core's share of a cache where the system does not tell."""


def bytes_of(shape: Shape, members: int) -> int:
    """What the states of so many members take at least; a product, as sizes may be absurd.

    >>> bytes_of(Shape(inputs=2, classes=3, layers=3, width=10), members=2)
    5536
    """
    bias, features = int(shape.bias), shape.features or shape.width
    deep = shape.layers > 2
    between = max(0, shape.layers - 3) * (shape.width + bias) * shape.width
    between += (shape.width + bias) * features if deep else 0
    first = shape.width if deep else features
    ends = (shape.inputs + bias) * first + (features + bias) * shape.classes
    return VECTORS * BYTES * members * (between + ends)


def physical_bytes() -> int | None:
    """The memory of this machine, None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def check_memory(shape: Shape, members: int) -> None:
    """Refuse models that cannot fit, before anything is written."""
    needed, there = bytes_of(shape, members), physical_bytes()
    if there is not None and needed > there:
        raise NclabError(
            f"Expected models that fit into the memory of {there / 1e9:.3g} GB, got {members} of "
            f"width {shape.width} and {shape.layers} layers, which take {needed / 1e9:.3g} GB or "
            "more. Take a smaller width, fewer layers or fewer models."
        )


def group_size(shape: Shape) -> int:
    """How many members train together: those whose states fit a core's share of the cache.

    >>> 1 <= group_size(Shape(width=5000)) <= group_size(Shape(width=8)) <= MOST
    True
    """
    return max(1, min(MOST, cache_share() // bytes_of(shape, 1)))


def cache_share(caches: Path = CACHES) -> int:
    """Bytes of the largest cache that one of the cores that share it may call its own."""
    shares = [USUAL]
    for cache in caches.glob("index*"):
        try:
            size, cores = ((cache / name).read_text() for name in ("size", "shared_cpu_map"))
            sharing = bin(int(cores.replace(",", ""), 16)).count("1")
            shares.append(int(size.strip().removesuffix("K")) * 1024 // max(1, sharing))
        except (OSError, ValueError):  # a system that tells it otherwise, or not
            continue
    return max(shares)
