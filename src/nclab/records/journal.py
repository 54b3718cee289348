"""The journal of a run: lines with checksums, one writer, any number of readers.

Lines are appended one by one. A line that a killed writer left incomplete is removed when the next
writer opens the journal. Readers skip damaged lines and say so.
"""

import contextlib
import os
import warnings
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from nclab.errors import NclabWarning, RecordError
from nclab.files import open_regular, translate_os_errors
from nclab.records.encoding import (
    CHECKSUM_SCHEMA,
    MAX_LINE_BYTES,
    add_checksum,
    check_line,
    decode,
    encode,
    line_prefix,
)
from nclab.records.manifest import read_manifest
from nclab.records.schema import END, SCHEMA, START, StartRecord
from nclab.records.state import acquire_lock, close_in_children

JOURNAL = "journal.jsonl"
Record = dict[str, Any]

FOREIGN = "its manifest and its journal are of different runs"
_OLD_HEADING = b'{"kind":"start","schema":1}'
"""First line of the journals of nclab 0.1.0, whose lines have no checksums."""
_MAX_HEADING_BYTES = 4096
_COMPARED_BYTES = 256
"""Bytes before the reader's position by which it notices that a journal was cut and grew again."""
_BLOCK_BYTES = 1 << 20


class Damage(NamedTuple):
    """The first damaged line that is followed by intact lines."""

    line: int
    offset: int


class JournalReader:
    """Reads the journal of a run and continues where it stopped.

    Every line is checked. A journal whose first line has a checksum must have checksums throughout;
    in a journal of nclab 0.1.0 a line is intact if it is JSON. Lines of another run are damaged
    ones.

    Args:
        folder: the folder of the run; it need not exist yet.
        kinds: kinds of records that `poll` returns; by default all.
        arrays: whether records keep their lists of numbers.
        root: a folder below which no link is followed.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> reader = JournalReader(folder)
    >>> lines = '{"kind":"start","schema":1}\\n{"kind":"note","step":1}\\n{"kind":"no'
    >>> _ = (folder / "journal.jsonl").write_text(lines)
    >>> reader.poll(), reader.poll()
    ([{'kind': 'note', 'step': 1}], [])
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        kinds: Collection[str] | None = None,
        arrays: bool = True,
        root: Path | None = None,
    ) -> None:
        self.path = Path(folder) / JOURNAL
        self._kinds, self._arrays, self._root = kinds, arrays, root
        self.position = 0
        """Bytes up to the end of the last complete line."""
        self._start()
        self.restarted = False
        """Whether the last poll began at the first line again, because the run was resumed."""

    def _start(self) -> None:
        """Go to the beginning of the journal."""
        self.restarted = self.position > 0
        self.identity: str | None = None
        """Identity of the run; None until the manifest or the first line tells it."""
        with contextlib.suppress(RecordError):
            self.identity = read_manifest(self.path.parent, root=self._root).identity
        self.has_checksums: bool | None = None
        """Whether the lines have checksums; None before the first line."""
        self.is_foreign = False
        """Whether the first line belongs to another run than the manifest."""
        self.heading: Record | None = None
        """Record of the first line, if the line is intact."""
        self.position = self.checksum = 0
        self.lines = self.damaged = self.missing = 0
        self.torn: int | None = None
        """First byte of an incomplete last line, which is being written or was left by a kill."""
        self.last = b""
        """Last complete line, if it is intact."""
        self.intact_end = self.intact_checksum = self.intact_lines = 0
        """Bytes up to the end of the last intact line, their CRC-32 and their number of lines."""
        self.last_intact = b""
        self.damaged_at_end = 0
        """Damaged lines after the last intact one."""
        self._first_damage: Damage | None = None
        self._last_number = self._damaged_since = 0
        self._compared = b""
        self._in_long_line = False

    def poll(self) -> list[Record]:
        """Return the records that are new since the last call; warn of damaged lines.

        If `restarted` is True afterwards, drop the records of earlier calls.
        """
        before = self.problem
        records = list(self.records())
        if self.problem and self.problem != before:
            warnings.warn(f"{self.path}: {self.problem}.", NclabWarning, stacklevel=2)
        return records

    def records(self) -> Iterator[Record]:
        """Yield the new records without the heading; damaged lines are skipped."""
        prefixes = None if self._kinds is None else tuple(map(line_prefix, self._kinds))
        for line in self.new_lines():
            if prefixes and line.startswith(b'{"kind":"') and not line.startswith(prefixes):
                continue
            record = decode(line)
            if record is None or record["kind"] == START:
                continue
            if self._kinds is None or record["kind"] in self._kinds:
                yield record if self._arrays else cast(Record, without_arrays(record))

    def new_lines(self) -> Iterator[bytes]:
        """Yield the intact lines that are new since the last call; one is in memory at a time."""
        self.restarted = False
        self.torn = None
        try:
            stream = open_regular(self.path, root=self._root)
        except FileNotFoundError:
            self._start()
            return
        with stream:
            stream.seek(self.position - len(self._compared))
            if self.position == 0 or stream.read(len(self._compared)) != self._compared:
                self._start()
                stream.seek(0)
            while line := stream.readline(MAX_LINE_BYTES + 1):
                offset = self.position
                if line.endswith(b"\n"):
                    self._advance(line)
                    if self._in_long_line:  # the end of a line that was counted already
                        self._in_long_line = False
                    elif self._accept(line, offset):
                        yield line
                elif len(line) > MAX_LINE_BYTES:
                    self._advance(line)
                    if not self._in_long_line:
                        self._in_long_line = True
                        self._accept(b"\0", offset)
                else:
                    self.torn = offset
                    return

    def _advance(self, content: bytes) -> None:
        self.position += len(content)
        self.checksum = zlib.crc32(content, self.checksum)
        self._compared = (self._compared + content[-_COMPARED_BYTES:])[-_COMPARED_BYTES:]

    def _accept(self, line: bytes, offset: int) -> bool:
        """Whether the next line is intact and in order; count it."""
        self.lines += 1
        missing = self._check(line)
        if missing is None:
            self.damaged += 1
            self.damaged_at_end += 1
            self.last = b""
        else:
            self.missing += missing
            self.intact_end, self.intact_checksum = self.position, self.checksum
            self.intact_lines, self.damaged_at_end = self.lines, 0
            self.last = self.last_intact = line
        if missing != 0 and self._first_damage is None:
            self._first_damage = Damage(self.lines, offset)
        return missing is not None

    def _check(self, line: bytes) -> int | None:
        """Return how many lines are missing before the next line, or None if it is damaged."""
        number = None if self.has_checksums is False else check_line(line, self.identity or "")
        if self.has_checksums is None:
            self._read_heading(line, is_intact=number is not None)
        if not self.has_checksums:
            return 0 if decode(line) is not None else None
        if number is None or number <= self._last_number or (self.is_foreign and number == 1):
            self._damaged_since += 1
            return None
        missing = max(0, number - self._last_number - 1 - self._damaged_since)
        self._last_number, self._damaged_since = number, 0
        return missing

    def _read_heading(self, line: bytes, *, is_intact: bool) -> None:
        """Learn from the first line whether lines have checksums and which run they belong to.

        Only the exact heading of nclab 0.1.0 announces lines without checksums: the remains of a
        damaged heading must not make every line look acceptable.
        """
        is_old = not is_intact and line.rstrip(b"\n") == _OLD_HEADING
        self.has_checksums = not is_old or bool(self.identity)
        if not (is_intact or is_old):
            return
        self.heading = decode(line)
        if self.heading is None or self.heading["kind"] != START:
            return
        identity = self.heading.get("identity", "")
        if self.identity is None:
            self.identity = identity if isinstance(identity, str) else ""
        self.is_foreign = identity != self.identity

    def read_heading(self) -> None:
        """Read the first line only."""
        with contextlib.suppress(FileNotFoundError):
            with open_regular(self.path, root=self._root) as stream:
                line = stream.readline(_MAX_HEADING_BYTES)
            if line.endswith(b"\n"):
                self._check(line)

    def is_intact(self, line: bytes) -> bool:
        """Whether a line of this journal is intact by itself; call `read_heading` before."""
        if self.has_checksums:
            return check_line(line, self.identity or "") is not None
        return decode(line) is not None

    @property
    def damage(self) -> Damage | None:
        """First damaged or missing line before the last intact one."""
        first = self._first_damage
        return first if first and first.offset < self.intact_end else None

    @property
    def problem(self) -> str | None:
        """What could not be read so far, or None."""
        parts = []
        if self.damaged:
            parts.append(f"{_count_lines(self.damaged)} damaged and skipped")
        if self.missing:
            parts.append(f"{_count_lines(self.missing)} missing")
        first = self._first_damage
        text = f"{' and '.join(parts)}, from line {first.line} on" if first else None
        return f"{FOREIGN}: {text}" if self.is_foreign else text

    def require_readable(self) -> None:
        """Raise if the first line belongs to another program or to a newer nclab."""
        if self.heading is None:
            return
        schema = self.heading.get("schema")
        if self.heading.get("kind") != START or not isinstance(schema, int):
            raise RecordError(
                f"Expected a journal of nclab, got another file: {self.path}. Use another folder."
            )
        if schema > SCHEMA:
            raise RecordError(
                f"Expected records of schema {SCHEMA} or older, got schema {schema} in "
                f"{self.path}. Update nclab."
            )


def _count_lines(count: int) -> str:
    return f"{count} line{'s are' if count > 1 else ' is'}"


def without_arrays(value: Any) -> Any:
    """Return the value without its lists of numbers; lists of objects stay.

    >>> without_arrays({"kind": "m", "layers": [{"min_intra": 0.9, "intra": [0.9, 1.0]}]})
    {'kind': 'm', 'layers': [{'min_intra': 0.9}]}
    """
    if isinstance(value, dict):
        return {key: without_arrays(item) for key, item in value.items() if not _is_array(item)}
    if isinstance(value, list):
        return [without_arrays(item) for item in value]
    return value


def _is_array(value: Any) -> bool:
    while isinstance(value, list):
        if not value:
            return True
        value = value[0]
        if isinstance(value, int | float):
            return True
    return False


def prefix_checksum(stream: BinaryIO, length: int) -> tuple[int, int] | None:
    """Return CRC-32 and number of lines of the first bytes of a file; None if it is shorter."""
    stream.seek(0)
    checksum = lines = 0
    while length > 0:
        block = stream.read(min(_BLOCK_BYTES, length))
        if not block:
            return None
        checksum = zlib.crc32(block, checksum)
        length -= len(block)
        lines += block.count(b"\n")
    return checksum, lines


def heading(identity: str) -> StartRecord:
    """Return the first record of a journal, which readers leave out.

    >>> heading("7c0e5f81a2b3d4c6")
    {'kind': 'start', 'schema': 3, 'identity': '7c0e5f81a2b3d4c6'}
    """
    if not identity:  # an older run that starts again: its lines are not bound to it
        return {"kind": START, "schema": CHECKSUM_SCHEMA}
    return {"kind": START, "schema": SCHEMA, "identity": identity}


class JournalWriter:
    """The only writer of a journal.

    A journal of nclab 0.1.0 keeps its form: its new lines have no checksums either. `identity` is
    that of the run, if the run has no manifest yet.
    """

    def __init__(self, folder: Path, identity: str | None = None) -> None:
        self.path = folder / JOURNAL
        self._refusal: str | None = None
        with translate_os_errors("write", self.path, RecordError):
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            acquire_lock(self._descriptor, self.path)  # the file "lock" may have been removed
            reader = JournalReader(folder)
            with translate_os_errors("read", self.path, RecordError):
                for _ in reader.new_lines():
                    pass
            reader.require_readable()
            if reader.is_foreign:  # before anything is cut off
                raise RecordError(
                    f"Expected the journal of the run that the manifest describes, got that of "
                    f"another run: {self.path}. Restore the manifest or the journal from a copy."
                )
            known = identity if reader.identity is None else reader.identity
            self._identity = known or ""
            self.dropped = reader.damaged_at_end
            """Damaged lines at the end, which are cut off."""
            self.length, self.checksum = reader.intact_end, reader.intact_checksum
            """Bytes written so far, and their CRC-32."""
            self._lines, self._last_line = reader.intact_lines, reader.last_intact
            self.damage = reader.damage
            self._has_checksums = reader.has_checksums is not False
            if self.dropped:
                warnings.warn(
                    f"The end of {self.path} is damaged; {_count_lines(self.dropped)} removed.",
                    NclabWarning,
                    stacklevel=4,
                )
            if self.damage is None:  # cut off what a kill or a power failure left at the end
                self._truncate(self.length)
                if self.length == 0:
                    self.append(heading(self._identity))
        except BaseException:
            os.close(self._descriptor)
            raise
        close_in_children(self)

    def bind(self, identity: str) -> None:
        """Write a new heading for a journal that has no other line."""
        if identity != self._identity:
            self._identity = identity
            self.cut(0)

    @property
    def end(self) -> Record | None:
        """The last record, if it ends the run."""
        return decode(self._last_line) if self._last_line.startswith(line_prefix(END)) else None

    @property
    def is_new(self) -> bool:
        """Whether the journal has no line but its heading."""
        return self._lines == 1

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one line with one system call; if the disk is full, remove the part that fit."""
        if self.damage is not None:
            raise RecordError(self.damage_message())
        self._require_writable()
        line = encode(record)
        if self._has_checksums:
            line = add_checksum(line[:-1], self._lines + 1, self._identity)
        if len(line) > MAX_LINE_BYTES:
            raise RecordError(
                f"Expected a record of at most {MAX_LINE_BYTES:,} bytes, got {len(line):,} for "
                f"{self.path}. Leave out some of its arrays."
            )
        try:
            written = os.write(self._descriptor, line)
            while written < len(line):  # a disk that is nearly full accepts a part
                written += os.write(self._descriptor, line[written:])
        except OSError as error:
            with contextlib.suppress(OSError):  # else the next writer cuts off the torn line
                os.ftruncate(self._descriptor, self.length)
            raise self._fail(error) from error
        self.length += len(line)
        self.checksum = zlib.crc32(line, self.checksum)
        self._last_line = line
        self._lines += 1

    def flush(self) -> None:
        """Wait until all lines are on the disk."""
        self._require_writable()
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise self._fail(error) from error

    def _require_writable(self) -> None:
        """Raise after an error of the disk, when its content is unknown, and in forked children."""
        if self._refusal:
            raise RecordError(self._refusal)
        if self._descriptor < 0:
            raise RecordError(
                f"Expected the process that opened {self.path}, got a forked copy of it or a "
                "closed run. Let one process write."
            )

    def _fail(self, error: OSError) -> RecordError:
        """Refuse all further writes and return the error to raise."""
        self._refusal = (
            f"Cannot write {self.path}: {error.strerror}. Nothing written before is lost. Free "
            "some space and start again to continue."
        )
        return RecordError(self._refusal)

    def checksum_of(self, length: int) -> int | None:
        """Return the CRC-32 of the first bytes, or None if the journal is shorter."""
        if length == self.length and self.damage is None:
            return self.checksum
        prefix = self._prefix(length)
        return None if prefix is None else prefix[0]

    def _prefix(self, length: int) -> tuple[int, int] | None:
        with (
            translate_os_errors("read", self.path, RecordError),
            open(self._descriptor, "rb", closefd=False) as stream,
        ):
            return prefix_checksum(stream, length)

    def before_step(self, step: int) -> tuple[int, int]:
        """Return the bytes before the first record of a step or later, and the records after them.

        The record that ends the run is not counted.
        """
        length = later = 0
        reader = JournalReader(self.path.parent)
        with translate_os_errors("read", self.path, RecordError):
            for line in reader.new_lines():
                record = decode(line) or {}
                if record.get("kind") == END:
                    break
                record_step = record.get("step")
                if later or (isinstance(record_step, int) and record_step >= step):
                    later += 1
                else:
                    length = reader.position
        return length, later

    def cut(self, length: int) -> None:
        """Keep the first bytes only; with 0 bytes, a new journal begins."""
        prefix = self._prefix(length)
        if prefix is None:
            raise RecordError(f"Expected {length} bytes in {self.path}, got fewer.")
        self._truncate(length)
        self.length, (self.checksum, self._lines) = length, prefix
        self.damage, self._last_line = None, b""
        if length == 0:
            self._has_checksums = True
            self.append(heading(self._identity))
        self.flush()

    def close(self) -> None:
        """Close the file; a second call has no effect."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _truncate(self, length: int) -> None:
        self._require_writable()
        try:
            os.ftruncate(self._descriptor, length)
        except OSError as error:
            raise self._fail(error) from error

    def damage_message(self) -> str:
        """Return the error message for a journal with a damaged line in the middle."""
        assert self.damage is not None
        return (
            f"Expected the record that was written to line {self.damage.line} of {self.path} (byte "
            f"{self.damage.offset}), got damaged bytes. Restore the file from a copy, or delete "
            "its folder and start again."
        )
