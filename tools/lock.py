"""Write `constraints.lock`: the exact version of every package that `make setup` installs.

    .venv/bin/python tools/lock.py            write it from the installed packages
    .venv/bin/python tools/lock.py --hashes   also write hashes.txt from the package index
    .venv/bin/python tools/lock.py --check    compare both files with packages and index

hashes.txt is a requirements file. tools/install.py passes it to pip, which compares its downloads.
`make lock` does all this after a change of pyproject.toml or constraints.txt.

The packages are those that pyproject.toml names, and their dependencies. A local build of torch is
locked by its public version and has no hash, because builds differ between machines.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from install import HASHES, LOCK, ROOT, platform
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

WITHOUT_HASH = ("torch",)
HEAD = "# Written by tools/lock.py from what `make setup` has installed. Do not edit.\n"


def direct() -> list[Requirement]:
    """Return the requirements in pyproject.toml, including those of extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    found = [Requirement(line) for line in (*project["dependencies"], *extras)]
    return [requirement for requirement in found if requirement.name != project["name"]]


def locked() -> dict[str, str]:
    """Return the installed version of every required package by name."""
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(own, extra) for own in direct() for extra in ("", *own.extras)]
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            package = distribution(name)
        except PackageNotFoundError:
            sys.exit(f"Expected {name} to be installed, got nothing. Run make setup.")
        found[name] = Version(package.version).public
        for line in package.requires or []:
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                waiting += [(needed, one) for one in ("", *needed.extras)]
    return dict(sorted(found.items()))


def hashes(versions: dict[str, str]) -> dict[str, str]:
    """Return the sha256 of the file that the index offers for each package; install nothing."""
    lines = [f"{n}=={v}" for n, v in versions.items() if n not in WITHOUT_HASH]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        command += ["--no-deps", "--quiet", "--report", str(report), *lines]
        subprocess.run(command, check=True)
        chosen = json.loads(report.read_text())["install"]
    return {
        canonicalize_name(one["metadata"]["name"]): one["download_info"]["archive_info"]["hashes"][
            "sha256"
        ]
        for one in chosen
    }


def requirements(versions: dict[str, str], found: dict[str, str]) -> str:
    """Return the text of hashes.txt."""
    lines = [f"{name}=={versions[name]} --hash=sha256:{found[name]}\n" for name in sorted(found)]
    return f"{HEAD}# For {platform()}.\n{''.join(lines)}"


def compared(versions: dict[str, str]) -> list[str]:
    """Return one line for each difference from the files; an empty list if there is none."""
    wrong = []
    if LOCK.read_text() != constraints(versions):
        wrong.append(f"{LOCK.name} is not what is installed: run tools/lock.py")
    known = HASHES.read_text().splitlines()
    for line in requirements(versions, hashes(versions)).splitlines():
        if line not in known:
            wrong.append(f"{HASHES.name} lacks what the index says: {line}")
    return wrong


def constraints(versions: dict[str, str]) -> str:
    """Return the text of constraints.lock."""
    return HEAD + "".join(f"{name}=={version}\n" for name, version in versions.items())


def main() -> None:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hashes", action="store_true")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    versions = locked()
    if asked.check:
        sys.exit("\n".join(compared(versions)) or 0)
    LOCK.write_text(constraints(versions))
    if asked.hashes:
        HASHES.write_text(requirements(versions, hashes(versions)))


if __name__ == "__main__":
    main()
