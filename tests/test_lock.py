"""`constraints.lock` names an exact version for everything that `make setup` installs."""

import re
import runpy
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LINE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*==[0-9][0-9a-z.]*")


def pins(name: str) -> dict[str, str]:
    lines = [line for line in (ROOT / name).read_text().splitlines() if line[:1] not in ("#", "")]
    found = [Requirement(line) for line in lines]
    return {canonicalize_name(one.name): str(one.specifier).removeprefix("==") for one in found}


def test_every_line_is_one_exact_version_from_no_host() -> None:
    lines = (ROOT / "constraints.lock").read_text().splitlines()[1:]
    assert len(lines) > 100
    assert all(LINE.fullmatch(line) for line in lines)
    assert lines == sorted(lines, key=lambda line: line.split("==")[0])


def test_it_agrees_with_the_versions_that_were_chosen() -> None:
    lock = pins("constraints.lock")
    for name, version in pins("constraints.txt").items():
        assert lock[name] == version, f"{name}: run make lock"


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the lock is that of Python 3.11")
def test_it_is_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock names all installed packages, and no requirement of a package is missing."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    installed = runpy.run_path(str(ROOT / "tools" / "lock.py"))["locked"]()
    assert installed == pins("constraints.lock"), "run make lock"


def test_every_package_but_torch_is_installed_by_its_hash() -> None:
    lock, found = pins("constraints.lock"), {}
    for line in (ROOT / "hashes.txt").read_text().splitlines()[2:]:
        pin, value = line.split(" --hash=sha256:")
        name, found[name] = pin.split("==")
        assert re.fullmatch(r"[0-9a-f]{64}", value)
    assert found == {name: version for name, version in lock.items() if name != "torch"}


def test_no_step_downloads_what_is_not_checked_but_torch() -> None:
    """On the platform of the hashes, every download but torch is checked by its hash."""
    steps = runpy.run_path(str(ROOT / "tools" / "install.py"))["steps"]
    checked, torch, own = steps(hashed=True)
    assert {"--require-hashes", "--no-deps"} <= set(checked)
    assert torch == ["--constraint", str(ROOT / "constraints.lock"), "torch"]
    assert {"--no-deps", "--no-build-isolation"} <= set(own)
