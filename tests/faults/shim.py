"""Let the n-th change of a folder fail, by a library loaded before libc or in Python."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("shim.c")
CHANGES = ("open", "write", "fsync", "ftruncate", "replace", "rename", "unlink", "mkdir", "rmdir")


def build(folder: Path) -> Path | None:
    """Compile the library; return None if there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    library = folder / "shim.so"
    if compiler is None:
        return None
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, check=False)
    return library if done.returncode == 0 else None


class Faults:
    """Faults of a forked child; they stay armed until it ends."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        self.by_library = hasattr(library, "faults_arm")
        self._library, self._seen = library, 0

    def arm(self, folder: Path, number: int, error: int, *, for_ever: bool) -> None:
        """Let the n-th change fail, or all changes from the n-th on."""
        if self.by_library:
            self._library.faults_arm(os.fsencode(folder), ctypes.c_long(number), error, for_ever)
            return
        for name in CHANGES:
            setattr(os, name, self._failing(getattr(os, name), folder, number, error, for_ever))

    @property
    def seen(self) -> int:
        """Return the number of changes of the folder so far."""
        return int(self._library.faults_seen()) if self.by_library else self._seen

    def _failing(
        self, call: Callable[..., Any], folder: Path, number: int, error: int, for_ever: bool
    ) -> Callable[..., Any]:
        def failing(*given: Any, **options: Any) -> Any:
            if _path(given).startswith(str(folder)):
                self._seen += 1
                if self._seen == number or (for_ever and self._seen > number):
                    raise OSError(error, os.strerror(error), given[0])
            return call(*given, **options)

        return failing


def _path(given: tuple[Any, ...]) -> str:
    """Return the path that a call changes: its last argument, or the file of its descriptor."""
    paths = [os.fspath(one) for one in given if isinstance(one, str | os.PathLike)]
    if paths:
        return str(paths[-1])
    try:
        return os.readlink(f"/proc/self/fd/{given[0]}")
    except OSError:
        return ""
