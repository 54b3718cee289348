"""The journal of a run: lines with checksums, one writer, any number of readers.

Lines are appended one by one. A line that a killed writer left incomplete is removed when the next
writer opens the journal. Readers skip damaged lines with a warning.
"""

import contextlib
import fcntl
import os
import time
import warnings
import weakref
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

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
from nclab.records.manifest import Checkpoint, read_manifest
from nclab.records.schema import END, SCHEMA, START
from nclab.text import counted

JOURNAL = "journal.jsonl"
LOCK = "lock"
Record = dict[str, Any]

_OLD_HEADING = b'{"kind":"start","schema":1}'
"""First line of the journals of nclab 0.1.0, whose lines have no checksums."""
_COMPARED_BYTES = 256
"""Number of bytes before its position that a reader reads again at each call.

If they have changed, the run was resumed from an earlier step, and the reader starts again.
"""
_BLOCK_BYTES = 1 << 20
_LOCK_ATTEMPTS, _LOCK_PAUSE_SECONDS = 5, 0.05
"""Number of attempts to get the lock, and the pause between them. Several attempts are needed
because `is_locked` in another process holds the lock for a moment."""


class Damage(NamedTuple):
    """The first damaged line that is followed by intact lines."""

    line: int
    offset: int


class JournalReader:
    """Reads the journal of a run; each call returns what was added since the last call.

    Every line is checked. If the first line has a checksum, all lines must have one. In a journal
    of nclab 0.1.0, which has no checksums, a line is intact if it is JSON. A line of another run
    counts as damaged.

    Args:
        folder: the folder of the run; it need not exist yet.
        kinds: kinds of records that `poll` returns; by default all.
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
        root: Path | None = None,
    ) -> None:
        self.path = Path(folder) / JOURNAL
        self._kinds, self._root = kinds, root
        self.position = 0
        """Bytes up to the end of the last complete line."""
        self._start()
        self.restarted = False
        """Whether the last poll began at the first line again, because the run was resumed."""

    def _start(self) -> None:
        """Go to the beginning of the journal."""
        self.restarted = self.position > 0
        self.identity: str | None = None
        """Identity of the run; None until the manifest or the first line has been read."""
        with contextlib.suppress(RecordError):
            self.identity = read_manifest(self.path.parent, root=self._root).identity
        self.has_checksums: bool | None = None
        """Whether the lines have checksums; None before the first line."""
        self.is_foreign = False
        """Whether the manifest and the first line belong to different runs."""
        self.heading: Record | None = None
        """Record of the first line, if the line is intact."""
        self.position = self.checksum = 0
        self.lines = self.damaged = self.missing = 0
        self.torn: int | None = None
        """Position of an incomplete last line, which is being written or a killed writer left."""
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
        """Yield the new records without the first line; damaged lines are skipped."""
        prefixes = None if self._kinds is None else tuple(map(line_prefix, self._kinds))
        for line in self.new_lines():
            if prefixes and line.startswith(b'{"kind":"') and not line.startswith(prefixes):
                continue  # much faster than decoding the line
            record = decode(line)
            if record is None or record["kind"] == START:
                continue
            if self._kinds is None or record["kind"] in self._kinds:
                yield record

    def new_lines(self) -> Iterator[bytes]:
        """Yield the intact lines that are new since the last call, one by one to save memory."""
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
                is_long = len(line) > MAX_LINE_BYTES
                if not line.endswith(b"\n") and not is_long:
                    self.torn = self.position
                    return
                self.position += len(line)
                self.checksum = zlib.crc32(line, self.checksum)
                self._compared = (self._compared + line[-_COMPARED_BYTES:])[-_COMPARED_BYTES:]
                if not self._in_long_line and self._accept(b"\0" if is_long else line, len(line)):
                    yield line
                self._in_long_line = not line.endswith(b"\n")

    def _accept(self, line: bytes, size: int) -> bool:
        """Count the next line; return whether it is intact and in order."""
        self.lines += 1
        missing = self._check(line)
        if missing is None:
            self.damaged += 1
            self.damaged_at_end += 1
        else:
            self.missing += missing
            self.intact_end, self.intact_checksum = self.position, self.checksum
            self.intact_lines, self.damaged_at_end = self.lines, 0
            self.last_intact = line
        if missing != 0 and self._first_damage is None:
            self._first_damage = Damage(self.lines, self.position - size)
        return missing is not None

    def _check(self, line: bytes) -> int | None:
        """Return how many lines are missing before the given line; None if this line is damaged."""
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

        Only the exact first line of nclab 0.1.0 means that lines have no checksums. With another
        rule, damage to the first line could turn off the checks of all lines.
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

    @property
    def damage(self) -> Damage | None:
        """Position of the first damaged or missing line before the last intact line."""
        first = self._first_damage
        return first if first and first.offset < self.intact_end else None

    @property
    def problem(self) -> str | None:
        """Description of the lines that could not be read so far; None if all could be read."""
        if self._first_damage is None:
            return None
        parts = []
        if self.damaged:
            parts.append(f"{_count_lines(self.damaged)} damaged and skipped")
        if self.missing:
            parts.append(f"{_count_lines(self.missing)} missing")
        text = f"{' and '.join(parts)}, from line {self._first_damage.line} on"
        foreign = "its manifest and its journal are of different runs: "
        return f"{foreign}{text}" if self.is_foreign else text

    def end_problem(self, heartbeat: Mapping[str, Any]) -> str | None:
        """Return a description of what is missing at the end of the journal, or None.

        Call it only after reading all lines of a run to which no process writes. `heartbeat` is the
        content of `state.json`, in which the writer left the length of the journal.
        """
        if self.lines == 0:
            return "its journal is missing or has no complete line"
        if self.torn is not None:
            return f"its last line is incomplete, from byte {self.torn} on"
        length = heartbeat.get("journal_length")
        if isinstance(length, int) and self.position < length:
            return f"its journal has {self.position} bytes instead of {length}"
        if heartbeat.get("state") == "finished" and not self.last_intact.startswith(_END_PREFIX):
            return "it has finished, but its last record is missing"
        return None

    @property
    def end(self) -> Record | None:
        """The last record, if it ends the run."""
        if self.damaged_at_end or not self.last_intact.startswith(_END_PREFIX):
            return None
        return decode(self.last_intact)

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


_END_PREFIX = line_prefix(END)


def _count_lines(count: int) -> str:
    return f"{counted(count, 'line')} {'is' if count == 1 else 'are'}"


def prefix_checksum(path: Path, length: int, *, root: Path | None = None) -> tuple[int, int] | None:
    """Return the CRC-32 and the number of lines of the first `length` bytes of a file.

    Return None if the file is shorter.
    """
    checksum = lines = 0
    with open_regular(path, root=root) as stream:
        while length > 0:
            block = stream.read(min(_BLOCK_BYTES, length))
            if not block:
                return None
            checksum = zlib.crc32(block, checksum)
            length -= len(block)
            lines += block.count(b"\n")
    return checksum, lines


def belongs(
    checkpoint: Checkpoint, journal: Path, identity: str, *, root: Path | None = None
) -> bool:
    """Whether a checkpoint belongs to the run `identity` and its journal.

    The journal must still start with the bytes that it had when the checkpoint was written.
    """
    if checkpoint.identity != identity:
        return False
    try:
        prefix = prefix_checksum(journal, checkpoint.journal_length, root=root)
    except OSError:
        return False
    return prefix is not None and prefix[0] == checkpoint.journal_checksum


class JournalWriter:
    """The only writer of a journal.

    New lines in a journal of nclab 0.1.0 have no checksums, like its old lines. Pass the
    `identity` of a run that has no manifest yet.
    """

    def __init__(self, folder: Path, identity: str | None = None) -> None:
        self.path = folder / JOURNAL
        self._refusal: str | None = None
        self._process = os.getpid()
        with translate_os_errors("write", self.path, RecordError):
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            reader = JournalReader(folder)
            with translate_os_errors("read", self.path, RecordError):
                for _ in reader.new_lines():
                    pass
            reader.require_readable()
            if reader.is_foreign:  # raise before the end of the file is removed
                raise RecordError(
                    f"Expected the journal of the run that the manifest describes, got that of "
                    f"another run: {self.path}. Restore the manifest or the journal from a copy."
                )
            # Only the checksums of later lines depend on the identity.
            is_new = identity is not None and reader.lines <= 1
            self._identity = (identity if is_new else reader.identity) or ""
            self.length, self.checksum = reader.intact_end, reader.intact_checksum
            """Bytes written so far, and their CRC-32."""
            self._lines, self._last_line = reader.intact_lines, reader.last_intact
            self.damage = reader.damage
            self._has_checksums = reader.has_checksums is not False
            if reader.damaged_at_end:
                removed = _count_lines(reader.damaged_at_end)
                message = f"The end of {self.path} is damaged; {removed} removed."
                warnings.warn(message, NclabWarning, stacklevel=4)
            if self.damage is None:  # remove incomplete lines at the end
                self._change(os.ftruncate, self.length)
                if is_new or self.length == 0:
                    self.cut(0)
        except BaseException:
            self.close()
            raise

    @property
    def end(self) -> Record | None:
        """The last record, if it ends the run."""
        return decode(self._last_line) if self._last_line.startswith(_END_PREFIX) else None

    @property
    def is_new(self) -> bool:
        """Whether the journal has only its first line, and no records yet."""
        return self._lines == 1

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one line; if the disk is full, remove the part of the line that was written."""
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
            while written < len(line):  # a nearly full disk accepts only a part
                written += os.write(self._descriptor, line[written:])
        except OSError as error:
            with contextlib.suppress(OSError):  # if this fails, the next writer removes the part
                os.ftruncate(self._descriptor, self.length)
            raise self._fail(error) from error
        self.length += len(line)
        self.checksum = zlib.crc32(line, self.checksum)
        self._last_line = line
        self._lines += 1

    def flush(self) -> None:
        """Wait until all lines are on the disk."""
        self._change(os.fsync)

    def _change(self, call: Callable[..., object], *arguments: int) -> None:
        """Call a system function on the open journal; after an error, refuse all further writes."""
        self._require_writable()
        try:
            call(self._descriptor, *arguments)
        except OSError as error:
            raise self._fail(error) from error

    def _require_writable(self) -> None:
        """Raise if the journal is closed, an earlier write failed, or this is a forked process."""
        if self._refusal:
            raise RecordError(self._refusal)
        if self._descriptor < 0 or self._process != os.getpid():
            raise RecordError(
                f"Expected the process that opened {self.path}, but the run is closed or this is a "
                "forked process. Let one process write."
            )

    def _fail(self, error: OSError) -> RecordError:
        """Refuse all further writes and return the error to raise."""
        self._refusal = (
            f"Cannot write {self.path}: {error.strerror}. Nothing written before is lost. Free "
            "some space and start again to continue."
        )
        return RecordError(self._refusal)

    def before_step(self, step: int) -> tuple[int, int]:
        """Return how many bytes the journal has before a step, and how many records from it on.

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
        """Keep only the first `length` bytes; 0 starts a new journal with the same identity."""
        prefix = prefix_checksum(self.path, length)
        if prefix is None:
            raise RecordError(f"Expected {length} bytes in {self.path}, but it is shorter.")
        self._change(os.ftruncate, length)
        self.length, (self.checksum, self._lines) = length, prefix
        self.damage, self._last_line = None, b""
        if length == 0:
            self._has_checksums = True
            heading: Record = {"kind": START, "schema": CHECKSUM_SCHEMA}
            if self._identity:
                heading = {"kind": START, "schema": SCHEMA, "identity": self._identity}
            self.append(heading)
        self.flush()

    def close(self) -> None:
        """Close the file; a second call has no effect."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def damage_message(self) -> str:
        """Return the error message for a journal with a damaged line in the middle."""
        assert self.damage is not None
        return (
            f"Expected an intact journal, but line {self.damage.line} of {self.path} (byte "
            f"{self.damage.offset}) is damaged. Restore the file from a copy, or delete its folder "
            "and start again."
        )


class Lock:
    """Exclusive lock on a run, held by this process until `close`."""

    def __init__(self, folder: Path) -> None:
        with translate_os_errors("write", folder / LOCK, RecordError):
            self._descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                self._acquire(folder)
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
            except BaseException:
                self.close()
                raise
        _open_locks.add(self)

    def _acquire(self, folder: Path) -> None:
        for attempt in range(_LOCK_ATTEMPTS):
            if attempt:
                time.sleep(_LOCK_PAUSE_SECONDS)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
        owner = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
        raise RecordError(
            f"Expected a run that no other process writes to, but {folder} is in use by process "
            f"{owner if owner.isdigit() else 'unknown'}. Wait for it, or use another folder."
        )

    def close(self) -> None:
        """Release the lock; a second call has no effect."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_locked(folder: Path, *, root: Path | None = None) -> bool:
    """Whether a living process writes to this run.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> lock = Lock(folder)
    >>> before = is_locked(folder)
    >>> lock.close()
    >>> before, is_locked(folder)
    (True, False)
    """
    try:
        with open_regular(folder / LOCK, root=root) as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no lock file, or a file system without locks
        return False
    return False


_open_locks: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _close_locks() -> None:
    """Close all locks in a forked process, which must not hold them after its parent has ended."""
    for lock in list(_open_locks):
        lock.close()


os.register_at_fork(after_in_child=_close_locks)
