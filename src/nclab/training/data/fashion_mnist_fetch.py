"""Fetches FashionMNIST: Debian's package without root, or the official files."""

import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path

from nclab.errors import DataError, MissingData, NclabError
from nclab.files import write_whole
from nclab.training.data.fashion_mnist_files import HOW, PACKAGE, PACKAGE_FOLDER, File, read_checked

OFFICIAL = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
)
"""Where the authors publish the files; the checksums decide, not the connection."""
SECONDS = 30.0
"""Patience with a server that does not answer."""
PACKAGE_SECONDS = 600.0
"""Patience with the download of the whole package."""


def fetch_files(
    files: Sequence[File], target: Path, *, addresses: Sequence[str] = OFFICIAL
) -> Path:
    """Put the files into the target folder, checked; the folder itself is given back.

    First `apt-get download` and `dpkg -x`, which need neither root nor internet where a mirror is
    near; then the addresses. If nothing works, one line says what was tried.
    """
    tried = []
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MissingData(f"Cannot make the folder {target}: {error.strerror}.") from error
    with tempfile.TemporaryDirectory(dir=target, prefix=".fetch-") as name:
        scratch = Path(name)
        for source in ("the Debian package", *addresses):
            try:
                if source in addresses:
                    found = _from_address(files, source, scratch)
                else:
                    found = _from_package(scratch)
                for file in files:
                    read_checked(found, file)
            except NclabError as error:
                tried.append(f"{source}: {error}")
                continue
            for file in files:
                write_whole(target / f"{file.name}.gz", (found / f"{file.name}.gz").read_bytes())
            return target
    reasons = "; ".join(line.removesuffix(f" {HOW}.").rstrip(".") for line in tried)
    raise MissingData(
        f"FashionMNIST is not on this machine and cannot be fetched ({reasons}). {HOW}."
    )


def _from_package(scratch: Path) -> Path:
    """Download Debian's package and unpack it, as any user may."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise DataError("no apt-get and dpkg here")
    _call(["apt-get", "download", PACKAGE], scratch)
    packages = sorted(scratch.glob("*.deb"))
    if not packages:
        raise DataError("apt-get gave no package")
    _call(["dpkg", "-x", packages[0].name, "unpacked"], scratch)
    return scratch / "unpacked" / PACKAGE_FOLDER.relative_to("/")


def _call(command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, errors="replace", timeout=PACKAGE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"{command[0]} did not run ({error})") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise DataError(f"{command[0]} failed ({last})")


def _from_address(files: Sequence[File], address: str, scratch: Path) -> Path:
    """Download the files one by one."""
    found = scratch / "official"
    found.mkdir(exist_ok=True)
    for file in files:
        try:
            with urllib.request.urlopen(f"{address}/{file.name}.gz", timeout=SECONDS) as answer:
                content = answer.read()
        except (OSError, HTTPException) as error:  # URLError is an OSError
            reason = getattr(error, "reason", None) or error
            raise DataError(f"no answer ({reason})") from error
        write_whole(found / f"{file.name}.gz", content)
    return found
