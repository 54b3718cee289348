"""Small random changes of bytes."""

import random
import re
from collections.abc import Callable
from typing import Literal

Mutation = Callable[[random.Random, bytes], bytes]


def flipped(chance: random.Random, content: bytes) -> bytes:
    place, bit = chance.randrange(len(content)), 1 << chance.randrange(8)
    return content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :]


def replaced(chance: random.Random, content: bytes) -> bytes:
    place = chance.randrange(len(content))
    return content[:place] + bytes([chance.randrange(256)]) + content[place + 1 :]


def inserted(chance: random.Random, content: bytes) -> bytes:
    place, count = chance.randrange(len(content)), chance.choice((1, 1, 2, 40))
    return content[:place] + chance.randbytes(count) + content[place:]


def deleted(chance: random.Random, content: bytes) -> bytes:
    place, count = chance.randrange(len(content)), chance.choice((1, 1, 2, 40))
    return content[:place] + content[place + count :]


def copied(chance: random.Random, content: bytes) -> bytes:
    begin, end = sorted(chance.randrange(len(content)) for _ in range(2))
    place = chance.randrange(len(content))
    return content[:place] + content[begin:end] + content[place:]


NUMBER = re.compile(rb"[0-9]+")
ODD = (b"0", b"1", b"-1", b"7", b"255", b"65535", b"4294967295", b"18446744073709551616", b"1e999")
"""Numbers at which sizes go wrong."""


def renumbered(chance: random.Random, content: bytes) -> bytes:
    """Replace one number written in digits, as in headers, by an odd one."""
    found = list(NUMBER.finditer(content[:4096]))
    if not found:
        return flipped(chance, content)
    one = chance.choice(found)
    return content[: one.start()] + chance.choice(ODD) + content[one.end() :]


def cut(chance: random.Random, content: bytes) -> bytes:
    return content[: chance.randrange(len(content))]


def stamped(chance: random.Random, content: bytes) -> bytes:
    """Replace a binary field of 2, 4 or 8 bytes, as in archives, by an odd value."""
    width = chance.choice((2, 4, 8))
    place = chance.randrange(max(1, len(content) - width))
    value = chance.choice((0, 1, 2**15, 2**31 - 1, 2**32 - 1, 2**63 - 1)) % 2 ** (8 * width)
    order: Literal["little", "big"] = chance.choice(("little", "big"))
    return content[:place] + value.to_bytes(width, order) + content[place + width :]


BYTES: tuple[Mutation, ...] = (flipped, replaced, inserted, deleted, copied)
FILES: tuple[Mutation, ...] = (*BYTES, renumbered, cut, stamped)
