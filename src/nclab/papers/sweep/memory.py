"""Whether the models of a sweep fit into the memory of this machine."""

import os

from nclab.errors import NclabError
from nclab.models.mlp import Shape

VECTORS = 4
"""Parameters and momenta, and a copy of both from the last epoch that ended well."""
BYTES = 4
"""Of a float32."""


def bytes_of(shape: Shape, members: int) -> int:
    """What the states of so many members take at least; a product, as sizes may be absurd.

    >>> bytes_of(Shape(inputs=2, classes=3, layers=3, width=10), members=2)
    5536
    """
    bias = int(shape.bias)
    between = max(0, shape.layers - 2) * (shape.width + bias) * shape.width
    ends = (shape.inputs + bias) * shape.width + (shape.width + bias) * shape.classes
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
