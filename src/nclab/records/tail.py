"""Following a journal while it grows."""

import os
import warnings
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from nclab.errors import NclabWarning, RecordError
from nclab.files import open_regular
from nclab.records.journal import FILE as JOURNAL
from nclab.records.lines import LONGEST
from nclab.records.manifest import read_manifest
from nclab.records.read import parse
from nclab.records.reading import Reading

BLOCK = 1 << 22
"""Bytes that are read at once."""
MEMORY = 256
"""Bytes before our place that are compared, to notice a journal that was cut and grew again."""


class Tail:
    """Gives each record of a growing journal once.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> tail = Tail(folder)
    >>> lines = '{"kind":"start","schema":1}\\n{"kind":"note","step":1}\\n{"kind":"no'
    >>> _ = (folder / "journal.jsonl").write_text(lines)
    >>> tail.poll(), tail.poll()
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
        """With a `root` no link below it is followed."""
        self._path, self._root = Path(folder) / JOURNAL, root
        self._kinds, self._arrays = kinds, arrays
        self._place = 0
        self._before = b""
        self._skipping = False
        """Whether our place is within a line that is too long to be one of ours."""
        self.reading = Reading()
        """Which lines were good so far."""
        self.restarted = False
        """Whether the last poll began anew, because the run was resumed: drop what you have."""

    def poll(self) -> list[dict[str, Any]]:
        """New complete records since the last call; from the first one if `restarted`."""
        before = self.problem
        found: list[dict[str, Any]] = []
        for content in self._whole():
            lines = content.split(b"\n")[:-1]
            found += parse(lines, self.reading, kinds=self._kinds, arrays=self._arrays)
        if self.problem and self.problem != before:
            warnings.warn(f"{self._path}: {self.problem}.", NclabWarning, stacklevel=2)
        return found

    def contents(self) -> Iterator[bytes]:
        """The same as whole lines of every kind, for readers that decode only some of them.

        Parts of at most a few megabytes, unless a line is longer.
        """
        for content in self._whole():
            good = [self.reading.accepts(line) for line in content.split(b"\n")[:-1]]
            if all(good):
                yield content
            else:
                lines = zip(content.split(b"\n"), good, strict=False)
                yield b"".join(b"%s\n" % line for line, kept in lines if kept)

    @property
    def problem(self) -> str | None:
        """What of the journal could not be read so far, in words."""
        return self.reading.problem

    def _whole(self) -> Iterator[bytes]:
        """New whole lines, some at a time."""
        self.restarted = False
        try:
            stream = open_regular(self._path, root=self._root)
        except FileNotFoundError:
            self._begin_again()
            return
        if self._place == 0:
            self._begin_again()
        with stream:
            stream.seek(self._place - len(self._before))
            if stream.read(len(self._before)) != self._before:
                self._begin_again()
                stream.seek(0)
            rest = b""
            while block := stream.read(BLOCK):
                block = rest + block
                end = block.rfind(b"\n") + 1
                if end:
                    rest = block[end:]
                    if whole := self._taken(block[:end]):
                        yield whole
                elif self._skipping or len(block) > LONGEST:
                    self._skip(block)
                    rest = b""
                else:
                    rest = block

    def _taken(self, lines: bytes) -> bytes:
        """Whole lines that are passed now, without the end of one that was too long."""
        self._pass(lines)
        if self._skipping:
            self._skipping = False
            return lines[lines.index(b"\n") + 1 :]
        return lines

    def _skip(self, part: bytes) -> None:
        """Pass a part of a line that is too long; it is counted once."""
        if not self._skipping and self.reading.accepts(part[-MEMORY:]):
            self.reading.refuse()
        self._skipping = True
        self._pass(part)

    def _pass(self, content: bytes) -> None:
        self._place += len(content)
        self._before = (self._before + content[-MEMORY:])[-MEMORY:]

    def _begin_again(self) -> None:
        self.restarted = self._place > 0
        self._place, self._before, self._skipping = 0, b"", False
        self.reading = Reading(self._identity())

    def _identity(self) -> str | None:
        """Of the run; None where the first line must tell it, for the manifest comes later."""
        try:
            return read_manifest(self._path.parent, root=self._root).identity
        except RecordError:
            return None
