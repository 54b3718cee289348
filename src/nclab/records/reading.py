"""Reading a journal line by line: what is whole, what is damaged, what is gone."""

import contextlib
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from nclab.files import open_regular
from nclab.records.lines import LONGEST, decode
from nclab.records.schema import START
from nclab.records.seals import open_line

HEADING_BYTES = 4096
"""No first line of a journal is longer."""
OLD_HEADING = b'{"kind":"start","schema":1}'
"""As nclab 0.1.0 wrote it."""
FOREIGN = "its manifest and its journal are of different runs"
SHOWN = 64
"""Bytes that are kept of a line which is too long to be one of ours."""
SKIPPED = 1 << 20
"""Bytes of it that are read at once."""


class JournalLines:
    """The lines of a journal, of which only one is in memory, and never more than `LONGEST` of it.

    A line that is longer is cut short, so that nobody takes it for whole.

    >>> import io
    >>> lines = JournalLines(io.BytesIO(b"one\\ntwo\\nthr"))
    >>> list(lines), lines.offset
    ([b'one\\n', b'two\\n', b'thr'], 11)
    """

    def __init__(self, stream: BinaryIO, *, longest: int = LONGEST) -> None:
        self._stream, self._longest = stream, longest
        self.offset = 0
        """Bytes up to the end of the line that was given last."""
        self.checksum = 0
        """Their CRC-32."""

    def __iter__(self) -> Iterator[bytes]:
        while line := self._stream.readline(self._longest + 1):
            self._pass(line)
            if len(line) > self._longest:
                ended = line.endswith(b"\n") or self._skip()
                line = line[:SHOWN] + (b"\0\n" if ended else b"\0")
            yield line

    def _skip(self) -> bool:
        """Go to the end of the line; whether it has one."""
        while block := self._stream.read(SKIPPED):
            end = block.find(b"\n") + 1
            if end:
                self._stream.seek(end - len(block), os.SEEK_CUR)
                self._pass(block[:end])
                return True
            self._pass(block)
        return False

    def _pass(self, content: bytes) -> None:
        self.offset += len(content)
        self.checksum = zlib.crc32(content, self.checksum)


@dataclass
class Reading:
    """Tells the good lines of one journal from damaged ones, in their order.

    A journal whose first line is sealed must have sealed lines throughout. An older one has none,
    its lines are as good as their JSON. Lines that were sealed for another run are damaged here.

    >>> from nclab.records.seals import seal_line
    >>> reading = Reading()
    >>> lines = [seal_line(b'{"kind":"note"}', number) for number in (1, 2, 5, 6)]
    >>> [reading.accepts(line) for line in [lines[0], lines[1][:-9], lines[2], lines[1], lines[3]]]
    [True, False, True, False, True]
    >>> reading.damaged, reading.missing, reading.first
    (2, 2, 2)
    """

    identity: str | None = None
    """Of the run, as its manifest has it, empty for an older one; None if the first line tells."""
    sealed: bool | None = None
    """Whether the lines are; None before the first one."""
    foreign: bool = False
    """Whether the first line is that of another run."""
    lines: int = 0
    """Lines seen so far."""
    damaged: int = 0
    missing: int = 0
    """Lines that must have been there, by the numbers of those that are."""
    first: int | None = None
    """The line where the first damage was seen."""
    last_is_good: bool = False
    """Whether the line just seen is whole."""
    _last: int = 0
    _since: int = 0

    @classmethod
    def of(cls, path: Path, *, identity: str | None = None, root: Path | None = None) -> "Reading":
        """A reading that has seen the first line of a journal, if there is one."""
        reading = cls(identity)
        with contextlib.suppress(FileNotFoundError), open_regular(path, root=root) as stream:
            line = stream.readline(HEADING_BYTES)
            if line.endswith(b"\n"):
                reading.accepts(line)
        return reading

    def accepts(self, line: bytes) -> bool:
        """Whether the next line is whole and in its place."""
        self.lines += 1
        self.last_is_good = True
        seal = None if self.sealed is False else open_line(line, self.identity or "")
        if self.sealed is None:
            old = seal is None and _is_old_heading(line)
            self.sealed = not old or bool(self.identity)
            if seal or old:  # a damaged one says nothing
                self._compare(line)
        if not self.sealed:
            return True
        if seal is None or seal.number <= self._last or (self.foreign and seal.number == 1):
            self._since += 1
            self.refuse()
            return False
        gone = seal.number - self._last - 1 - self._since
        if gone > 0:
            self.missing += gone
            self.first = self.first or self.lines
        self._last, self._since = seal.number, 0
        return True

    def _compare(self, first: bytes) -> None:
        """Learn the identity from the first line, or notice that it is another."""
        found = decode(first) or {}
        if found.get("kind") != START:
            return
        told = found.get("identity", "")
        if self.identity is None:
            self.identity = told if isinstance(told, str) else ""
        self.foreign = told != self.identity

    def record(self, line: bytes) -> dict[str, Any] | None:
        """The record of the next line, None where it is damaged."""
        if not self.accepts(line):
            return None
        found = decode(line)
        if found is None:
            self.refuse()
        return found

    def refuse(self) -> None:
        """Count the line just seen as damaged; for who reads more of it than its seal."""
        self.last_is_good = False
        self.damaged += 1
        self.first = self.first or self.lines

    @property
    def problem(self) -> str | None:
        """What is wrong, in words; None where nothing is."""
        found = []
        if self.damaged:
            found.append(f"{_lines(self.damaged)} damaged and left out")
        if self.missing:
            found.append(f"{_lines(self.missing)} missing")
        words = f"{' and '.join(found)}, from line {self.first} on" if found else None
        return f"{FOREIGN}: {words}" if self.foreign else words


def _lines(count: int) -> str:
    return f"{count} line{'s are' if count > 1 else ' is'}"


def _is_old_heading(line: bytes) -> bool:
    """Whether a first line without a right seal is that of a journal which has none.

    Nothing else will do: what is left of a damaged heading must not make every line look unsealed.
    """
    return line.rstrip(b"\n") == OLD_HEADING
