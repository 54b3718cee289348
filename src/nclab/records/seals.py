"""Seals: what makes a changed byte of a record noticed, in the line or the file itself.

A line of a journal ends with its number, its length and a CRC-32 of all three, a file of JSON with
its length and a CRC-32. Both stay plain JSON. Its number lets a reader notice lines that are gone,
doubled or out of order, and still believe every whole line after damage. The CRC-32 of a line
starts from the identity of its run, so that a line of another run is none of this one.
"""

import json
import math
import re
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from nclab.errors import RecordError

SEALED: int = 2
"""The first schema whose lines and files are sealed."""
BOUND: int = 3
"""The first schema whose lines are bound to the identity of their run."""
MEMBER = "check"
_LINE = re.compile(rb',"check":"([1-9][0-9]*)-([1-9][0-9]*)-([0-9a-f]{8})"\}\n?\Z')
_FILE = re.compile(rb',\n *"check": "([1-9][0-9]*)-([0-9a-f]{8})"\n\}\n?\Z')
LONGEST = 80
"""No seal of a line or a file has more bytes."""


class Seal(NamedTuple):
    """What a whole line says of itself."""

    number: int
    body: bytes
    """The line as it was before it was sealed, without its newline."""


def seal_line(body: bytes, number: int, identity: str = "") -> bytes:
    """A line of a journal, from its JSON object without a newline.

    >>> seal_line(b'{"kind":"note"}', 3)
    b'{"kind":"note","check":"3-15-0fa5ec52"}\\n'
    >>> seal_line(b'{"kind":"note"}', 3, "7c0e5f81a2b3d4c6")
    b'{"kind":"note","check":"3-15-a1a22542"}\\n'
    """
    told = b"%d-%d" % (number, len(body))
    seen = _crc(body, told, number, identity)
    return b'%s,"check":"%s-%08x"}\n' % (body[:-1], told, seen)


def open_line(line: bytes, identity: str = "") -> Seal | None:
    """The number and the body of a sealed line; None where a byte is not as it was.

    None, too, where the line was sealed for a run of another identity.

    >>> open_line(b'{"kind":"note","check":"3-15-0fa5ec52"}')
    Seal(number=3, body=b'{"kind":"note"}')
    >>> open_line(b'{"kind":"nope","check":"3-15-0fa5ec52"}'), open_line(b'{"kind":"note"}')
    (None, None)
    >>> open_line(b'{"kind":"note","check":"3-15-0fa5ec52"}', "7c0e5f81a2b3d4c6") is None
    True
    """
    found = _seal_of(line)
    if found is None:
        return None
    number, length, told = found.groups()
    body = line[: found.start()] + b"}"
    seen = _crc(body, b"%s-%s" % (number, length), int(number), identity)
    whole = int(length) == len(body) and int(told, 16) == seen
    return Seal(int(number), body) if whole else None


def _crc(body: bytes, told: bytes, number: int, identity: str) -> int:
    """CRC-32 of a line, from a start that no other run has.

    Equal bytes from two starts never have the same. The first line is not bound: it tells the
    identity, and a reader who knows no other must be able to believe it.
    """
    start = zlib.crc32(identity.encode("utf-8", "surrogatepass")) if number > 1 else 0
    return zlib.crc32(told, zlib.crc32(body, start))


def body_of(line: bytes) -> bytes:
    """A line without its seal, whether that is right or not."""
    found = _seal_of(line)
    return line if found is None else line[: found.start()] + b"}"


def _seal_of(line: bytes) -> re.Match[bytes] | None:
    return _LINE.search(line, max(0, len(line) - LONGEST))


def seal_json(value: Mapping[str, Any], *, indent: int = 1) -> bytes:
    """A file of JSON that knows when it is damaged; it says schema 2 or later.

    >>> print(seal_json({"loss": 0.5}).decode(), end="")
    {
     "schema": 2,
     "loss": 0.5,
     "check": "30-4172f656"
    }
    """
    content = {"schema": SEALED, **value}
    text = json.dumps(content, allow_nan=False, ensure_ascii=False, indent=indent)
    body = text.encode("utf-8", "surrogatepass")
    end = f',\n{" " * indent}"{MEMBER}": "{len(body)}-{zlib.crc32(body):08x}"\n}}\n'
    return body[:-2] + end.encode()


def open_json(content: bytes) -> tuple[Any, bool]:
    """What a file holds, and whether it was sealed; RecordError where a byte is not as it was.

    Numbers that are not finite, which only files of others have, become None.

    >>> open_json(seal_json({"loss": 0.5})), open_json(b'{"loss": 0.5}')
    (({'schema': 2, 'loss': 0.5}, True), ({'loss': 0.5}, False))
    >>> open_json(seal_json({"loss": 0.5}).replace(b"5", b"7"))
    Traceback (most recent call last):
    nclab.errors.RecordError: its check says that it was changed
    """
    found = _FILE.search(content, max(0, len(content) - LONGEST))
    body = content if found is None else content[: found.start()] + b"\n}"
    if found and (int(found[1]) != len(body) or int(found[2], 16) != zlib.crc32(body)):
        raise RecordError("its check says that it was changed")
    try:
        value = json.loads(body, parse_constant=lambda _: None, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{type(error).__name__}: {error}") from error
    if found is None and isinstance(value, dict) and (MEMBER in value or _says_sealed(value)):
        raise RecordError("its check is damaged")
    return value, found is not None


def _says_sealed(value: Mapping[str, Any]) -> bool:
    schema = value.get("schema")
    return isinstance(schema, int) and schema >= SEALED


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None
