"""Following a journal while it grows."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from nclab.records.journal import FILE as JOURNAL
from nclab.records.read import parse

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
        self.restarted = False
        """Whether the last poll began anew, because the run was resumed: drop what you have."""

    def poll(self) -> list[dict[str, Any]]:
        """New complete records since the last call; from the first one if `restarted`."""
        lines = self.content().split(b"\n")[:-1]
        return list(parse(lines, self._path, kinds=self._kinds, arrays=self._arrays))

    def content(self) -> bytes:
        """The same as whole lines of every kind, for readers that decode only some of them."""
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
