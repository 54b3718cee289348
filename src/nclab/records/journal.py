"""The journal: sealed lines appended one by one, a torn end repaired when it is opened."""

import contextlib
import os
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from nclab.errors import NclabWarning, RecordError
from nclab.files import open_regular, translate_os_errors
from nclab.records.lines import LONGEST, decode, encode, opening
from nclab.records.lock import hold, leave_to_parent
from nclab.records.reading import JournalLines, Reading
from nclab.records.schema import END, SCHEMA, START, StartRecord
from nclab.records.seals import SEALED, seal_line

FILE = "journal.jsonl"

ENDING = opening(END)
BLOCK = 1 << 20


class Damage(NamedTuple):
    """The first place that is not as it was written although good lines follow."""

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
    lines: int
    """Up to the end of the last readable one."""
    reading: Reading


def heading(identity: str) -> StartRecord:
    """The first line of every journal; readers leave it out.

    >>> heading("7c0e5f81a2b3d4c6")
    {'kind': 'start', 'schema': 3, 'identity': '7c0e5f81a2b3d4c6'}
    """
    if not identity:  # an older run that begins anew: its lines are not bound to it
        return {"kind": START, "schema": SEALED}
    return {"kind": START, "schema": SCHEMA, "identity": identity}


def scan(path: Path, *, identity: str | None = None, root: Path | None = None) -> Scan:
    """Read every line once; only one line is in memory at a time.

    With the identity of the manifest, lines of another run are damaged ones. With a root no link
    below it is followed.
    """
    end = good = lines = 0
    first: Damage | None = None
    lost = 0
    last = b""
    offset = 0
    reading = Reading(identity)
    with open_regular(path, root=root) as stream:
        content = JournalLines(stream)
        for number, line in enumerate(content, start=1):
            complete = line.endswith(b"\n")
            if not complete:  # torn, or being written
                first = first or Damage(number, offset)
                break
            gone, record = reading.missing, reading.record(line)
            if record is None or reading.missing > gone:
                first = first or Damage(number, offset)
            if number == 1 and (first_record := record or (reading.foreign and decode(line))):
                check_heading(first_record, path)
            if record is None:
                lost += 1
            else:
                end, good, last, lost = content.offset, content.checksum, line, 0
                lines = number
            offset = content.offset
    within = first if first and first.offset < end else None
    return Scan(end, good, lost, within, last, lines, reading)


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
    """The one writer of a journal. `length` and `checksum` cover what is written so far.

    Lines of a journal that an older nclab began are not sealed: one journal, one form.

    `identity` is that of the manifest, empty in an older run; None before there is a manifest.
    """

    def __init__(self, path: Path, identity: str | None = None) -> None:
        self.path = path
        self._refused: str | None = None
        with translate_os_errors("write", path, RecordError):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            hold(self._descriptor, path)  # itself, for the file "lock" may be removed
            with translate_os_errors("read", path, RecordError):
                found = scan(path, identity=identity)
            if found.reading.foreign:  # before anything is cut off as damaged
                raise RecordError(
                    f"Expected the journal of the run that the manifest tells of, got that of "
                    f"another run: {path}. Restore the manifest or the journal from a copy."
                )
            self._identity = found.reading.identity or ""
            self.dropped = found.lost
            """Lines at the end that could not be read."""
            self.length, self.checksum, self._lines = found.end, found.checksum, found.lines
            self.damage, self._last_line = found.damage, found.last
            self._sealed = found.reading.sealed is not False
            self._repair(found.lost)
        except BaseException:
            os.close(self._descriptor)
            raise
        leave_to_parent(self)

    def _repair(self, lost: int) -> None:
        """Cut off what a killed writer or a power cut has left at the end."""
        if lost:
            message = f"The end of {self.path} is damaged: {lost} lines are dropped."
            warnings.warn(message, NclabWarning, stacklevel=5)
        if self.damage is None:
            self._truncate(self.length)
            if self.length == 0:
                self.append(heading(self._identity))

    def belong_to(self, identity: str) -> None:
        """Bind a journal that has only its heading to a run."""
        if identity != self._identity:
            self._identity = identity
            self.cut(0)

    @property
    def end(self) -> dict[str, Any] | None:
        """The last record if it ends the run, as a reader would see it."""
        return decode(self._last_line) if self._last_line.startswith(ENDING) else None

    @property
    def is_new(self) -> bool:
        """Whether there is only the heading."""
        return self._lines == 1

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one line with one call; on a full disk take back what is there of it."""
        if self.damage is not None:
            raise RecordError(damage_message(self.path, self.damage))
        self._writable()
        line = encode(record)
        if self._sealed:
            line = seal_line(line[:-1], self._lines + 1, self._identity)
        if len(line) > LONGEST:
            raise RecordError(
                f"Expected a record of at most {LONGEST:,} bytes, got {len(line):,} for "
                f"{self.path}. Leave out some of its arrays."
            )
        try:
            written = os.write(self._descriptor, line)
            while written < len(line):  # a disk that is nearly full takes a part
                written += os.write(self._descriptor, line[written:])
        except OSError as error:
            with contextlib.suppress(OSError):  # else the next to open it cuts off the torn line
                os.ftruncate(self._descriptor, self.length)
            raise self._refuse(error) from error
        self.length += len(line)
        self.checksum = zlib.crc32(line, self.checksum)
        self._last_line = line
        self._lines += 1

    def flush(self) -> None:
        """Return when everything is on the disk itself."""
        self._writable()
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise self._refuse(error) from error

    def _writable(self) -> None:
        """Refuse a handle that failed, for what is on the disk is not known, or is not ours."""
        if self._refused:
            raise RecordError(self._refused)
        if self._descriptor < 0:
            raise RecordError(
                f"Expected the process that opened {self.path}, got a copy of it or a closed run. "
                "Let one process write."
            )

    def _refuse(self, error: OSError) -> RecordError:
        self._refused = (
            f"Cannot write {self.path}: {error.strerror}. Nothing written before is lost; "
            "make room and start again to go on."
        )
        return RecordError(self._refused)

    def checksum_of(self, length: int) -> int | None:
        """CRC-32 of the first bytes, None if there are fewer."""
        if length == self.length and self.damage is None:
            return self.checksum
        found = self._first(length)
        return found and found[0]

    def _first(self, length: int) -> tuple[int, int] | None:
        """CRC-32 and number of lines of the first bytes, None if there are fewer."""
        checksum = position = lines = 0
        while position < length:
            with translate_os_errors("read", self.path, RecordError):
                block = os.pread(self._descriptor, min(BLOCK, length - position), position)
            if not block:
                return None
            checksum = zlib.crc32(block, checksum)
            position += len(block)
            lines += block.count(b"\n")
        return checksum, lines

    def before(self, step: int) -> tuple[int, int]:
        """Bytes before the end of the run or the first record of a step or later; records after."""
        kept = later = 0
        with translate_os_errors("read", self.path, RecordError), open_regular(self.path) as stream:
            lines = JournalLines(stream)
            for line in lines:
                record = decode(line) or {}
                if record.get("kind") == END:
                    break
                at = record.get("step")
                if later or (isinstance(at, int) and at >= step):
                    later += 1
                else:
                    kept = lines.offset
        return kept, later

    def cut(self, length: int) -> None:
        """Keep the first bytes only, damage behind them is gone; nothing is kept of 0 bytes."""
        found = self._first(length)
        if found is None:
            raise RecordError(f"Expected {length} bytes in {self.path}, got fewer.")
        self._truncate(length)
        self.length, (self.checksum, self._lines) = length, found
        self.damage, self._last_line = None, b""
        if length == 0:
            self._sealed = True
            self.append(heading(self._identity))
        self.flush()

    def close(self) -> None:
        """Close the file; doing so twice does no harm."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _truncate(self, length: int) -> None:
        self._writable()
        try:
            os.ftruncate(self._descriptor, length)
        except OSError as error:
            raise self._refuse(error) from error


def damage_message(path: Path, damage: Damage) -> str:
    """What to say of a line that cannot be read."""
    return (
        f"Expected the record that was written on line {damage.line} of {path} (byte "
        f"{damage.offset}), got damaged bytes. Restore the file from a copy, or delete its folder "
        "and start anew."
    )
