"""Encoding of records: lines of JSON in a journal and files of JSON, both with checksums.

A line of a journal ends with its number, its length and a CRC-32; a JSON file ends with its length
and a CRC-32. Both are still plain JSON. The number shows a reader which lines are missing, repeated
or out of order, so that all intact lines after a damaged one can still be trusted. The CRC-32 of a
line also covers the identity of its run, so that a line copied from another run does not match.
"""

import json
import math
import re
import zlib
from collections.abc import Mapping
from typing import Any

from nclab.errors import RecordError

MAX_LINE_BYTES = 1 << 26
"""Longest line that nclab writes to a journal or reads from it."""
CHECKSUM_SCHEMA: int = 2
"""First version of the format (schema) in which lines and files have checksums."""
CHECKSUM = "check"
"""Key of the checksum, the last entry of a line or a file."""
_LINE_END = re.compile(rb',"check":"([1-9][0-9]*)-([1-9][0-9]*)-([0-9a-f]{8})"\}\n?\Z')
_FILE_END = re.compile(rb',\n *"check": "([1-9][0-9]*)-([0-9a-f]{8})"\n\}\n?\Z')
_MAX_END_BYTES = 80
"""Length of the longest text that matches `_LINE_END` or `_FILE_END`."""
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)


def encode(record: Mapping[str, Any]) -> bytes:
    """Return a record as a line of JSON that starts with its kind; nan and infinity become null.

    >>> encode({"step": 3, "kind": "note", "loss": float("nan")})
    b'{"kind":"note","step":3,"loss":null}\\n'
    """
    kind = record.get("kind")
    if not isinstance(kind, str):
        raise RecordError(
            f'Expected a record with a kind, got kind={kind!r}. Add a kind, such as "note".'
        )
    return f"{to_json({'kind': kind, **record})}\n".encode("ascii")


def decode(line: bytes) -> dict[str, Any] | None:
    """Return the record in a line, without its checksum; None if the line is not a record.

    >>> decode(b'{"kind":"note","step":3}'), decode(b'{"kind":"no'), decode(b"3")
    ({'kind': 'note', 'step': 3}, None, None)
    """
    try:
        record = _DECODER.decode(strip_checksum(line).decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        return None
    return record


def line_prefix(kind: str) -> bytes:
    """Return the first bytes of every line of a kind.

    >>> line_prefix("end")
    b'{"kind":"end"'
    """
    return f'{{"kind":"{kind}"'.encode()


def to_json(value: Any) -> str:
    """Return compact JSON; numbers that are not finite become null."""
    try:  # values are nearly always plain, and this is the fast path
        return _ENCODER.encode(value)
    except (TypeError, ValueError):
        return _ENCODER.encode(to_plain(value))


def to_plain(value: Any, *, path: str = "") -> Any:
    """Return the value in JSON types: arrays as lists, numbers that are not finite as None.

    >>> import numpy
    >>> to_plain({"a": numpy.float32(0.5), "b": (1, float("inf"))})
    {'a': 0.5, 'b': [1, None]}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): to_plain(item, path=f"{path}{key}.") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item, path=f"{path}{index}.") for index, item in enumerate(value)]
    if hasattr(value, "tolist"):  # numpy scalars and arrays, tensors
        return to_plain(value.tolist(), path=path)
    raise RecordError(
        f"Expected numbers, texts, lists and dictionaries, got {type(value).__name__} in "
        f"{path.rstrip('.') or 'the record'}. Convert it first."
    )


def require_json(value: Any, *, name: str) -> Any:
    """Return the value after writing it as JSON and reading it back: tuples become lists.

    Raise if JSON cannot represent the value, such as nan or a function.

    >>> require_json({"rates": (0.1, 0.2)}, name="config")
    {'rates': [0.1, 0.2]}
    """
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"Expected finite numbers, texts, lists and dictionaries in {name}, got {error}."
        ) from error


def add_checksum(body: bytes, number: int, identity: str = "") -> bytes:
    """Return a line for a journal: the record with the line's number, length and CRC-32 added.

    >>> add_checksum(b'{"kind":"note"}', 3)
    b'{"kind":"note","check":"3-15-0fa5ec52"}\\n'
    >>> add_checksum(b'{"kind":"note"}', 3, "7c0e5f81a2b3d4c6")
    b'{"kind":"note","check":"3-15-a1a22542"}\\n'
    """
    header = b"%d-%d" % (number, len(body))
    checksum = _line_checksum(body, header, number, identity)
    return b'%s,"check":"%s-%08x"}\n' % (body[:-1], header, checksum)


def check_line(line: bytes, identity: str = "") -> int | None:
    """Return the number of a line, or None if a byte changed or the line is of another run.

    >>> check_line(b'{"kind":"note","check":"3-15-0fa5ec52"}')
    3
    >>> check_line(b'{"kind":"nope","check":"3-15-0fa5ec52"}'), check_line(b'{"kind":"note"}')
    (None, None)
    >>> check_line(b'{"kind":"note","check":"3-15-0fa5ec52"}', "7c0e5f81a2b3d4c6") is None
    True
    """
    match = _LINE_END.search(line, max(0, len(line) - _MAX_END_BYTES))
    if match is None:
        return None
    number, length, written = match.groups()
    body = line[: match.start()] + b"}"
    checksum = _line_checksum(body, b"%s-%s" % (number, length), int(number), identity)
    is_intact = int(length) == len(body) and int(written, 16) == checksum
    return int(number) if is_intact else None


def _line_checksum(body: bytes, header: bytes, number: int, identity: str) -> int:
    """Return the CRC-32 of a line, with the CRC-32 of the identity of its run as start value.

    Equal lines with different start values never have equal checksums. The start value of the
    first line is 0, because this line holds the identity, and readers must be able to check the
    line before they know the identity.
    """
    start = zlib.crc32(identity.encode("utf-8", "surrogatepass")) if number > 1 else 0
    return zlib.crc32(header, zlib.crc32(body, start))


def strip_checksum(line: bytes) -> bytes:
    """Return a line without its checksum, whether the checksum is right or wrong."""
    match = _LINE_END.search(line, max(0, len(line) - _MAX_END_BYTES))
    return line if match is None else line[: match.start()] + b"}"


def dump_checked_json(value: Mapping[str, Any], *, indent: int = 1) -> bytes:
    """Return a JSON file that ends with its own length and CRC-32.

    >>> print(dump_checked_json({"loss": 0.5}).decode(), end="")
    {
     "schema": 2,
     "loss": 0.5,
     "check": "30-4172f656"
    }
    """
    content = {"schema": CHECKSUM_SCHEMA, **value}
    text = json.dumps(content, allow_nan=False, ensure_ascii=False, indent=indent)
    body = text.encode("utf-8", "surrogatepass")
    end = f',\n{" " * indent}"{CHECKSUM}": "{len(body)}-{zlib.crc32(body):08x}"\n}}\n'
    return body[:-2] + end.encode()


def load_checked_json(content: bytes) -> tuple[Any, bool]:
    """Return the value of a JSON file and whether the file has a checksum.

    Raise `RecordError` if a byte has changed since the file was written. Numbers that are not
    finite become None; only files of other programs contain them.

    >>> load_checked_json(dump_checked_json({"loss": 0.5})), load_checked_json(b'{"loss": 0.5}')
    (({'schema': 2, 'loss': 0.5}, True), ({'loss': 0.5}, False))
    >>> load_checked_json(dump_checked_json({"loss": 0.5}).replace(b"5", b"7"))
    Traceback (most recent call last):
    nclab.errors.RecordError: its checksum does not match its content
    """
    match = _FILE_END.search(content, max(0, len(content) - _MAX_END_BYTES))
    body = content if match is None else content[: match.start()] + b"\n}"
    if match and (int(match[1]) != len(body) or int(match[2], 16) != zlib.crc32(body)):
        raise RecordError("its checksum does not match its content")
    try:
        value = json.loads(body, parse_constant=lambda _: None, parse_float=_finite_or_none)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{type(error).__name__}: {error}") from error
    if match is None and isinstance(value, dict):
        schema = value.get("schema")
        if CHECKSUM in value or (isinstance(schema, int) and schema >= CHECKSUM_SCHEMA):
            raise RecordError("its checksum is damaged")
    return value, match is not None


def _finite_or_none(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None
