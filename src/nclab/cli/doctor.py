"""`nclab doctor`: check the installation on this machine and list what is missing."""

import importlib.util
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import typer

import nclab
from nclab import plugins
from nclab.cli.shared import JsonOption, print_json, print_table, text_table
from nclab.errors import NclabError

State = Literal["good", "missing", "wrong"]
COLOURS = {"good": "green", "missing": "yellow", "wrong": "red"}
WRONG = 1
"""Exit code if something is wrong."""
LITTLE_SPACE = 10**9
"""Free bytes of a disk below which the check fails."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def command(
    folder: Annotated[
        Path, typer.Argument(metavar="[RUNS]", help="Folder in which runs will be written.")
    ] = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Check versions, threads, BLAS, extras, data set, write access, kernel cache and plugins.

    Changes nothing. Exit code 1 if something is wrong; missing optional packages are not wrong.

    Example: [bold]nclab doctor runs/[/bold]
    """
    checks = [
        *_versions(),
        *_machine(),
        *_extras(),
        _data_set(),
        _write_access(folder),
        _kernel_cache(),
    ]
    plugin_rows = [plugin._asdict() for plugin in plugins.installed()]
    wrong = sum(check.state == "wrong" for check in checks)
    wrong += sum(bool(row["problem"]) for row in plugin_rows)
    if as_json:
        print_json({"checks": [asdict(check) for check in checks], "plugins": plugin_rows})
    else:
        headings = ("item", "state", "result", "what to do")
        rows = [astuple(check) for check in checks]
        fold = ("result", "what to do")
        print_table(text_table(headings, rows, colours={"state": COLOURS}, fold=fold))
        if plugin_rows:
            headings = ("plugin", "kind", "package", "problem")
            rows = [
                (row["name"], row["kind"], row["package"], row["problem"]) for row in plugin_rows
            ]
            colours = {"problem": {row["problem"]: "red" for row in plugin_rows}}
            print_table(text_table(headings, rows, colours=colours))
        typer.echo(f"{wrong} of these are wrong." if wrong else "Nothing is wrong.")
    if wrong:
        raise typer.Exit(WRONG)


@dataclass(frozen=True)
class Check:
    """Result of checking one item, with advice if the state is not good."""

    item: str
    state: State
    result: str
    advice: str = ""


def _versions() -> Iterator[Check]:
    """Check Python, nclab and the packages that it requires."""
    enough = sys.version_info >= (3, 11)
    version = f"{platform.python_version()} at {sys.executable}"
    advice = "" if enough else "Install Python 3.11 or newer."
    yield Check("python", "good" if enough else "wrong", version, advice)
    yield Check("nclab", "good", f"{nclab.__version__} at {Path(nclab.__file__).parent}")
    for line in _requirements():
        if "extra ==" not in line:
            yield _package(re.split(r"[\s;<>=!~\[]", line)[0], "pip install nclab", needed=True)


def _requirements() -> list[str]:
    """Return the requirements of nclab; nothing if it is not installed as a package."""
    try:
        return metadata.requires("nclab") or []
    except metadata.PackageNotFoundError:
        return []


def _package(name: str, advice: str, *, needed: bool = False) -> Check:
    try:
        return Check(name, "good", metadata.version(name))
    except metadata.PackageNotFoundError:
        return Check(name, "wrong" if needed else "missing", "not installed", advice)


def _machine() -> Iterator[Check]:
    """Check cores, threads, BLAS and graphics cards."""
    import numpy as np
    import torch

    from nclab.engine import cores
    from nclab.records.manifest import cpu

    yield Check("cores", "good", f"{cores()} usable of {os.cpu_count()}: {cpu()}")
    settings = [f"{name}={os.environ[name]}" for name in THREADS if name in os.environ]
    variables = ", ".join(settings) or "no variable is set"
    yield Check("threads", "good", f"{torch.get_num_threads()} of torch; {variables}")
    config = np.show_config(mode="dicts")
    blas = (config or {}).get("Build Dependencies", {}).get("blas", {})
    numpy_blas = f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
    torch_blas = "MKL" if torch.backends.mkl.is_available() else "OpenBLAS or another"
    yield Check("BLAS", "good", f"{torch_blas} in torch; {numpy_blas} in numpy")
    cuda = torch.cuda.is_available()
    devices = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    yield Check("CUDA", "good" if cuda else "missing", devices or "no device; the CPU is used")


def _extras() -> Iterator[Check]:
    """Check the packages of each extra; an extra without one of them is missing."""
    packages: dict[str, list[str]] = {}
    for line in _requirements():
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if extra and not line.startswith("nclab"):
            packages.setdefault(extra[1], []).append(re.split(r"[\s;<>=!~\[]", line)[0])
    for name in (name for name in packages if name not in ("dev", "docs", "all")):
        parts = [_package(package, "") for package in packages[name]]
        absent = ", ".join(part.item for part in parts if part.state != "good")
        present = ", ".join(f"{part.item} {part.result}" for part in parts if part.state == "good")
        if absent:
            result = f"without {absent}" + (f"; {present}" if present else "")
            yield Check(f"extra {name}", "missing", result, f"pip install nclab[{name}]")
        else:
            yield Check(f"extra {name}", "good", present)


def _data_set() -> Check:
    from nclab.training.data.fashion_mnist_files import (
        FILES,
        INSTALLATION,
        find_folder,
        read_checked,
    )

    home = find_folder(list(FILES.values()))
    if home is None:
        return Check("FashionMNIST", "missing", "not on this machine", f"{INSTALLATION}.")
    try:
        for file in FILES.values():
            read_checked(home, file)
    except NclabError as error:
        return Check("FashionMNIST", "wrong", str(error), "Delete the file.")
    return Check("FashionMNIST", "good", f"all four published files in {home}")


def _write_access(folder: Path) -> Check:
    """Check whether runs can be written to the folder, without creating it."""
    path = folder.absolute()
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    item = f"writing to {folder}"
    if not existing.is_dir():
        return Check(item, "wrong", f"{existing} is a file", "Use another folder.")
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".nclab-"):
            pass
    except OSError as error:
        return Check(item, "wrong", f"{existing}: {error.strerror}", "Use another folder.")
    free = shutil.disk_usage(existing).free
    if free < LITTLE_SPACE:
        return Check(item, "wrong", f"{free / 1e6:.0f} MB are free", "Free some disk space.")
    return Check(item, "good", f"{free / 1e9:.1f} GB are free")


def _kernel_cache() -> Check:
    """Check whether numba can cache compiled kernels, and count them."""
    item = "kernel cache"
    if importlib.util.find_spec("numba") is None:
        return Check(item, "missing", "no numba: plain torch trains", "pip install nclab[fast]")
    from nclab.training.fleet import epoch_kernel

    index = getattr(epoch_kernel.run_epoch, "_cache", None)
    path = Path(getattr(index, "cache_path", "") or "")
    if not path.name:
        return Check(item, "wrong", "numba caches no kernels", "Set NUMBA_CACHE_DIR to a folder.")
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not os.access(existing, os.W_OK):
        advice = "Set NUMBA_CACHE_DIR to a writable folder."
        return Check(item, "wrong", f"{path} is not writable", advice)
    sizes = [file.stat().st_size for file in path.glob("*.nbc")]
    return Check(item, "good", f"{len(sizes)} kernels, {sum(sizes) / 1e6:.1f} MB in {path}")
