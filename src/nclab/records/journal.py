"""The journal: whole lines appended one by one, a torn end repaired when it is opened."""

import os
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nclab.errors import NclabWarning, RecordError
from nclab.files import explained
from nclab.records.lines import decode, encode, opening
from nclab.records.schema import END, SCHEMA, START, StartRecord

FILE = "journal.jsonl"
HEADING: StartRecord = {"kind": START, "schema": SCHEMA}
"""The first line of every journal; readers leave it out."""

ENDING = opening(END)
BLOCK = 1 << 20


class Damage(NamedTuple):
    """The first line that cannot be read although readable ones follow."""

    line: int
    offset: int


class Scan(NamedTuple):
    """What a journal holds."""

    end: int
    """Bytes up to the end of the last readable line."""
    checksum: int
    """CRC-32 of those bytes."""
    lost: int
    """Unreadable lines after them, without a torn last one."""
    damage: Damage | None
    last: bytes
    """The last readable line."""


def scan(path: Path) -> Scan:
    """Read every line once; only one line is in memory at a time."""
    end = good = checksum = 0
    first: Damage | None = None
    lost = 0
    last = b""
    offset = 0
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            checksum = zlib.crc32(line, checksum)
            complete = line.endswith(b"\n")
            record = decode(line) if complete else None
            if record is None:
                first = first or Damage(number, offset)
                lost += complete
            else:
                if number == 1:
                    check_heading(record, path)
                end, good, last, lost = offset + len(line), checksum, line, 0
            offset += len(line)
    within = first if first and first.offset < end else None
    return Scan(end, good, lost, within, last)


def check_heading(record: Mapping[str, Any], path: Path) -> None:
    """Refuse a journal that a newer nclab has written."""
    schema = record.get("schema")
    if record.get("kind") != START or not isinstance(schema, int):
        raise RecordError(f"Expected a journal of nclab, got {path}. Take another folder.")
    if schema > SCHEMA:
        raise RecordError(
            f"Expected records of schema {SCHEMA} or older, got schema {schema} in {path}. "
            "Update nclab."
        )


class JournalWriter:
    """The one writer of a journal. `length` and `checksum` cover what is written so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with explained("write", path, RecordError):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            found = scan(path)
            self.length, self.checksum = found.end, found.checksum
            self.damage, self._last_line = found.damage, found.last
            self._repair(found.lost)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _repair(self, lost: int) -> None:
        """Cut off what a killed writer or a power cut has left at the end."""
        if lost:
            message = f"The end of {self.path} is damaged: {lost} lines are dropped."
            warnings.warn(message, NclabWarning, stacklevel=5)
        if self.damage is None:
            self._truncate(self.length)
            if self.length == 0:
                self.append(HEADING)

    @property
    def end(self) -> dict[str, Any] | None:
        """The last record if it ends the run, as a reader would see it."""
        return decode(self._last_line) if self._last_line.startswith(ENDING) else None

    @property
    def is_new(self) -> bool:
        """Whether there is only the heading."""
        return self._last_line == encode(HEADING)

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one line with one call; on a full disk take back what is there of it."""
        if self.damage is not None:
            raise RecordError(damage_message(self.path, self.damage))
        line = encode(record)
        try:
            written = os.write(self._descriptor, line)
            while written < len(line):  # a disk that is nearly full takes a part
                written += os.write(self._descriptor, line[written:])
        except OSError as error:
            self._truncate(self.length)
            raise RecordError(
                f"Cannot write {self.path}: {error.strerror}. Nothing written before is lost; "
                "make room and start again to go on."
            ) from error
        self.length += len(line)
        self.checksum = zlib.crc32(line, self.checksum)
        self._last_line = line

    def flush(self) -> None:
        """Return when everything is on the disk itself."""
        with explained("write", self.path, RecordError):
            os.fsync(self._descriptor)

    def checksum_of(self, length: int) -> int | None:
        """CRC-32 of the first bytes, None if there are fewer."""
        if length == self.length and self.damage is None:
            return self.checksum
        checksum = position = 0
        while position < length:
            block = os.pread(self._descriptor, min(BLOCK, length - position), position)
            if not block:
                return None
            checksum = zlib.crc32(block, checksum)
            position += len(block)
        return checksum

    def before(self, step: int) -> tuple[int, int]:
        """Bytes before the end of the run or the first record of a step or later; records after."""
        kept = offset = later = 0
        with self.path.open("rb") as stream:
            for line in stream:
                offset += len(line)
                record = decode(line) or {}
                if record.get("kind") == END:
                    break
                if later or record.get("step", -1) >= step:
                    later += 1
                else:
                    kept = offset
        return kept, later

    def cut(self, length: int) -> None:
        """Keep the first bytes only, damage behind them is gone; nothing is kept of 0 bytes."""
        checksum = self.checksum_of(length)
        if checksum is None:
            raise RecordError(f"Expected {length} bytes in {self.path}, got fewer.")
        self._truncate(length)
        self.length, self.checksum = length, checksum
        self.damage, self._last_line = None, b""
        if length == 0:
            self.append(HEADING)
        self.flush()

    def close(self) -> None:
        """Close the file; doing so twice does no harm."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _truncate(self, length: int) -> None:
        with explained("write", self.path, RecordError):
            os.ftruncate(self._descriptor, length)


def damage_message(path: Path, damage: Damage) -> str:
    """What to say of a line that cannot be read."""
    return (
        f"Expected a JSON object on line {damage.line} of {path}, got damaged bytes. "
        "Restore the file from a copy, or delete its folder and start anew."
    )
