"""One record, one line: JSON without NaN, in ASCII, its kind first."""

import json
import math
from collections.abc import Mapping
from typing import Any

from nclab.errors import RecordError
from nclab.records.seals import body_of

LONGEST = 1 << 26
"""Bytes of a line; what has more was not written by us and is not read."""
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)


def encode(record: Mapping[str, Any]) -> bytes:
    """The line of a record; numbers that are not finite become null, arrays become lists.

    >>> encode({"step": 3, "kind": "note", "loss": float("nan")})
    b'{"kind":"note","step":3,"loss":null}\\n'
    """
    kind = record.get("kind")
    if not isinstance(kind, str):
        raise RecordError(f"Expected a record with a kind, got kind={kind!r}. Name its kind.")
    return f"{to_json({'kind': kind, **record})}\n".encode("ascii")


def opening(kind: str) -> bytes:
    """How the line of a record of this kind begins.

    >>> opening("end")
    b'{"kind":"end"'
    """
    return f'{{"kind":"{kind}"'.encode()


def decode(line: bytes) -> dict[str, Any] | None:
    """The record of a line without its seal, or None where it is no JSON object with a kind.

    >>> decode(b'{"kind":"note","step":3}'), decode(b'{"kind":"no'), decode(b"3")
    ({'kind': 'note', 'step': 3}, None, None)
    """
    try:
        record = _DECODER.decode(body_of(line).decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        return None
    return record


def to_json(value: Any) -> str:
    """Compact JSON of a value; what is not finite becomes null."""
    try:  # plain values, nearly always: the fast way
        return _ENCODER.encode(value)
    except (TypeError, ValueError):
        return _ENCODER.encode(plain(value))


def plain(value: Any, *, where: str = "") -> Any:
    """A value of JSON types: arrays and tensors as lists, numbers not finite as None.

    >>> import numpy
    >>> plain({"a": numpy.float32(0.5), "b": (1, float("inf"))})
    {'a': 0.5, 'b': [1, None]}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {
            _key(key, where): plain(item, where=f"{where}{key}.") for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain(item, where=f"{where}{place}.") for place, item in enumerate(value)]
    if hasattr(value, "tolist"):  # numpy scalars and arrays, tensors
        return plain(value.tolist(), where=where)
    raise RecordError(
        f"Expected numbers, texts, lists and dictionaries, got {type(value).__name__} "
        f"at {where.rstrip('.') or 'the top'}. Convert it first."
    )


def exact(value: Any, *, what: str) -> Any:
    """The value as JSON gives it back, for what must come back as it was: NaN is refused.

    >>> exact({"rates": (0.1, 0.2)}, what="config")
    {'rates': [0.1, 0.2]}
    """
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"Expected finite numbers, texts, lists and dictionaries in {what}, got {error}."
        ) from error


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str | int):
        raise RecordError(
            f"Expected texts as keys of a record, got {key!r} at {where or 'the top'}."
        )
    return str(key)
