"""`nclab doctor`: check the installation on this machine and list what is missing."""

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer

import nclab
from nclab import plugins
from nclab.cli.shared import JsonOption, print_json, print_table, text_table

COLOURS = {"good": "green", "missing": "yellow", "wrong": "red"}
LITTLE_SPACE = 10**9
"""The check of the disk fails if fewer bytes than this are free."""


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="[RUNS]", help="Folder in which runs will be written.")
    ] = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Check versions, processor, optional packages, data set, write access and plugins.

    Changes nothing. Exit code 1 if something is wrong; missing optional packages are not wrong.

    Example: [bold]nclab doctor runs/[/bold]
    """
    checks = [*_packages(), *_machine(), _data_set(), _write_access(folder)]
    plugin_rows = plugins.installed()
    wrong = sum(check.state == "wrong" for check in checks)
    wrong += sum(bool(row.problem) for row in plugin_rows)
    if as_json:
        check_rows = [check._asdict() for check in checks]
        print_json({"checks": check_rows, "plugins": [row._asdict() for row in plugin_rows]})
    else:
        headings = ("item", "state", "result", "what to do")
        fold = ("result", "what to do")
        print_table(text_table(headings, checks, colours={"state": COLOURS}, fold=fold))
        if plugin_rows:
            print_table(text_table(("kind", "plugin", "package", "problem"), plugin_rows))
        typer.echo(f"{wrong} of these are wrong." if wrong else "Nothing is wrong.")
    if wrong:
        raise typer.Exit(1)


class Check(NamedTuple):
    """Result of checking one item, with advice if the state is not good."""

    item: str
    state: Literal["good", "missing", "wrong"]
    result: str
    advice: str = ""


def _packages() -> Iterator[Check]:
    """Check Python, the packages that nclab requires, and those of each extra."""
    yield Check("python", "good", f"{platform.python_version()} at {sys.executable}")
    yield Check("nclab", "good", f"{nclab.__version__} at {Path(nclab.__file__).parent}")
    extras: dict[str, list[str]] = {}
    for line in metadata.requires("nclab") or []:
        package = re.split(r"[\s;<>=!~\[]", line)[0]
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if package != "nclab":
            extras.setdefault(extra[1] if extra else "", []).append(package)
    for package in extras.pop("", []):
        version = _version(package)
        advice = "" if version else "pip install nclab"
        yield Check(package, "good" if version else "wrong", version or "not installed", advice)
    for extra_name in sorted(extras.keys() - {"dev", "docs", "all"}):
        installed = {package: _version(package) for package in extras[extra_name]}
        absent = ", ".join(name for name, version in installed.items() if not version)
        present = ", ".join(f"{name} {version}" for name, version in installed.items())
        if absent:
            advice = f"pip install nclab[{extra_name}]"
            yield Check(f"extra {extra_name}", "missing", f"without {absent}", advice)
        else:
            yield Check(f"extra {extra_name}", "good", present)


def _version(package: str) -> str:
    """Return the version of an installed package, or an empty text."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _machine() -> Iterator[Check]:
    """Check cores, threads and graphics cards."""
    import torch

    from nclab.engine import cores
    from nclab.records.manifest import cpu

    yield Check("cores", "good", f"{cores()} usable of {os.cpu_count()}: {cpu()}")
    yield Check("threads", "good", f"{torch.get_num_threads()} of torch")
    cuda = torch.cuda.is_available()
    devices = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    yield Check("CUDA", "good" if cuda else "missing", devices or "no device; the CPU is used")


def _data_set() -> Check:
    """Check whether FashionMNIST, which the experiments use, is on this machine."""
    from nclab.training.data.fashion_mnist_files import FILES, INSTALLATION, find_folder

    home = find_folder(list(FILES.values()))
    if home is None:
        return Check("FashionMNIST", "missing", "not on this machine", f"{INSTALLATION}.")
    return Check("FashionMNIST", "good", f"all four files in {home}")


def _write_access(folder: Path) -> Check:
    """Check whether runs can be written to the folder, without creating it."""
    path = folder.absolute()
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    item = f"writing to {folder}"
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".nclab-"):
            free = shutil.disk_usage(existing).free
    except OSError as error:
        return Check(item, "wrong", f"{existing}: {error.strerror}", "Use another folder.")
    if free < LITTLE_SPACE:
        return Check(item, "wrong", f"{free / 1e6:.0f} MB are free", "Free some disk space.")
    return Check(item, "good", f"{free / 1e9:.1f} GB are free")
