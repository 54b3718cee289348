"""What `nclab doctor` looks at: one function a matter, each gives findings."""

import importlib.util
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import nclab
from nclab.errors import NclabError

State = Literal["good", "missing", "wrong"]
LITTLE = 10**9
"""Bytes of a disk that are few."""


@dataclass(frozen=True)
class Finding:
    """One matter: what there is, and what to do where that is not enough."""

    what: str
    state: State
    found: str
    advice: str = ""


def examine(folder: Path) -> list[Finding]:
    """Everything; nothing on the machine is changed but a file that is written and deleted."""
    return [
        *_versions(),
        *_machine(),
        *_extras(),
        _data_set(),
        _write_rights(folder),
        _kernel_cache(),
    ]


def _versions() -> Iterator[Finding]:
    enough = sys.version_info >= (3, 11)
    found = f"{platform.python_version()} at {sys.executable}"
    yield Finding("python", "good" if enough else "wrong", found, "" if enough else "Take 3.11.")
    yield Finding("nclab", "good", f"{nclab.__version__} at {Path(nclab.__file__).parent}")
    for line in _requirements():
        if "extra ==" not in line:
            yield _package(re.split(r"[\s;<>=!~\[]", line)[0], "pip install nclab", needed=True)


def _requirements() -> list[str]:
    """What nclab asks for; nothing where it runs without being installed."""
    try:
        return metadata.requires("nclab") or []
    except metadata.PackageNotFoundError:
        return []


def _package(name: str, how: str, *, needed: bool = False) -> Finding:
    try:
        return Finding(name, "good", metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(name, "wrong" if needed else "missing", "not installed", how)


def _machine() -> Iterator[Finding]:
    import torch

    from nclab.records.manifest import cpu

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("cores", "good", f"{usable} usable of {os.cpu_count()}: {cpu()}")
    told = {name: os.environ[name] for name in THREADS if name in os.environ}
    words = ", ".join(f"{name}={value}" for name, value in told.items()) or "nothing is set"
    yield Finding("threads", "good", f"{torch.get_num_threads()} of torch; {words}")
    blas = "MKL" if torch.backends.mkl.is_available() else "OpenBLAS or another"
    yield Finding("BLAS", "good", f"{blas} in torch; {_numpy_blas()} in numpy")
    cuda = torch.cuda.is_available()
    devices = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
    yield Finding("CUDA", "good" if cuda else "missing", devices or "none; the CPU does it all")


THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


def _numpy_blas() -> str:
    import numpy as np

    told = np.show_config(mode="dicts")
    blas = (told or {}).get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()


def _extras() -> Iterator[Finding]:
    """What each extra brings; an extra of which something is missing is not installed."""
    wanted: dict[str, list[str]] = {}
    for line in _requirements():
        found = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if found and not line.startswith("nclab"):
            wanted.setdefault(found[1], []).append(re.split(r"[\s;<>=!~\[]", line)[0])
    for extra in (one for one in wanted if one not in ("dev", "docs", "all")):
        parts = [_package(name, "") for name in wanted[extra]]
        absent = [one.what for one in parts if one.state != "good"]
        told = ", ".join(f"{one.what} {one.found}" for one in parts if one.state == "good")
        if absent:
            said = f"without {', '.join(absent)}" + (f"; {told}" if told else "")
            yield Finding(f"extra {extra}", "missing", said, f"pip install nclab[{extra}]")
        else:
            yield Finding(f"extra {extra}", "good", told)


def _data_set() -> Finding:
    from nclab.training.data.fashion_mnist_files import (
        FILES,
        INSTALLATION,
        find_folder,
        read_checked,
    )

    home = find_folder(list(FILES.values()))
    if home is None:
        return Finding("FashionMNIST", "missing", "not on this machine", f"{INSTALLATION}.")
    try:
        for file in FILES.values():
            read_checked(home, file)
    except NclabError as error:
        return Finding("FashionMNIST", "wrong", str(error), "Delete the file.")
    return Finding("FashionMNIST", "good", f"all four files as published, in {home}")


def _write_rights(folder: Path) -> Finding:
    """Whether a run could be written there; the folder itself is not made."""
    place = folder.absolute()
    there = next(one for one in (place, *place.parents) if one.exists())
    what = f"writing to {folder}"
    if not there.is_dir():
        return Finding(what, "wrong", f"{there} is a file", "Take another folder.")
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".nclab-"):
            pass
    except OSError as error:
        return Finding(what, "wrong", f"{there}: {error.strerror}", "Take another folder.")
    free = shutil.disk_usage(there).free
    if free < LITTLE:
        return Finding(what, "wrong", f"{free / 1e6:.0f} MB are free", "Make room on the disk.")
    return Finding(what, "good", f"{free / 1e9:.1f} GB are free")


def _kernel_cache() -> Finding:
    """Where the compiled kernels are kept, and whether they are there."""
    what = "kernel cache"
    if importlib.util.find_spec("numba") is None:
        return Finding(what, "missing", "no numba: plain torch trains", "pip install nclab[fast]")
    from nclab.training.fleet import epoch_kernel

    index = getattr(epoch_kernel.run_epoch, "_cache", None)
    place = Path(getattr(index, "cache_path", "") or "")
    if not place.name:
        return Finding(what, "wrong", "numba keeps no kernels", "Set NUMBA_CACHE_DIR to a folder.")
    kept = list(place.glob("*.nbc")) if place.is_dir() else []
    near = next(one for one in (place, *place.parents) if one.exists())
    if not os.access(near, os.W_OK):
        advice = "Set NUMBA_CACHE_DIR to a folder that can be written."
        return Finding(what, "wrong", f"{place} cannot be written", advice)
    size = sum(one.stat().st_size for one in kept)
    return Finding(what, "good", f"{len(kept)} kernels, {size / 1e6:.1f} MB in {place}")
