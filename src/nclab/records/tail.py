"""Following a journal while it grows."""

import os
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

from nclab.errors import NclabWarning
from nclab.records.journal import FILE as JOURNAL
from nclab.records.read import parse
from nclab.records.reading import Reading

MEMORY = 256
"""Bytes before our place that are compared, to notice a journal that was cut and grew again."""


class Tail:
    """Gives each record of a growing journal once.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> tail = Tail(folder)
    >>> with (folder / "journal.jsonl").open("w") as journal:
    ...     _ = journal.write('{"kind":"note","step":1}\\n{"kind":"no')
    >>> tail.poll(), tail.poll()
    ([{'kind': 'note', 'step': 1}], [])
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        kinds: Collection[str] | None = None,
        arrays: bool = True,
    ) -> None:
        self._path = Path(folder) / JOURNAL
        self._kinds, self._arrays = kinds, arrays
        self._place = 0
        self._before = b""
        self.reading = Reading()
        """Which lines were good so far."""
        self.restarted = False
        """Whether the last poll began anew, because the run was resumed: drop what you have."""

    def poll(self) -> list[dict[str, Any]]:
        """New complete records since the last call; from the first one if `restarted`."""
        before = self.problem
        lines = self._whole().split(b"\n")[:-1]
        found = list(parse(lines, self.reading, kinds=self._kinds, arrays=self._arrays))
        if self.problem and self.problem != before:
            warnings.warn(f"{self._path}: {self.problem}.", NclabWarning, stacklevel=2)
        return found

    def content(self) -> bytes:
        """The same as whole lines of every kind, for readers that decode only some of them."""
        lines = self._whole().split(b"\n")[:-1]
        return b"".join(b"%s\n" % line for line in lines if self.reading.accepts(line))

    @property
    def problem(self) -> str | None:
        """What of the journal could not be read so far, in words."""
        return self.reading.problem

    def _whole(self) -> bytes:
        """New whole lines."""
        self.restarted = False
        try:
            stream = self._path.open("rb")
        except FileNotFoundError:
            self._begin_again()
            return b""
        with stream:
            stream.seek(self._place - len(self._before))
            content = stream.read()
            if not content.startswith(self._before):
                self._begin_again()
                stream.seek(0)
                content = stream.read()
        fresh = content[len(self._before) :]
        whole = fresh[: fresh.rfind(b"\n") + 1]
        if not whole:
            return b""
        self._place += len(whole)
        self._before = (self._before + whole[-MEMORY:])[-MEMORY:]
        return whole

    def _begin_again(self) -> None:
        self.restarted = self._place > 0
        self._place, self._before = 0, b""
        self.reading = Reading()
