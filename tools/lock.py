"""Write `constraints.lock`: the exact version of every package that `make setup` installs.

    .venv/bin/python tools/lock.py            from what is installed
    .venv/bin/python tools/lock.py --hashes   also hashes.txt, from what the package index says
    .venv/bin/python tools/lock.py --check    compare both with what is installed and what it says

`make lock` does it all after a change of pyproject.toml or constraints.txt.

The packages are those that pyproject.toml names, and whatever these need. A local build of torch is
locked by its public version and has no hash: it differs from machine to machine.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
LOCK, HASHES = ROOT / "constraints.lock", ROOT / "hashes.txt"
WITHOUT_HASH = ("torch",)
HEAD = "# Written by tools/lock.py from what `make setup` has installed. Do not edit.\n"


def direct() -> list[Requirement]:
    """What pyproject.toml names, extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    found = [Requirement(line) for line in (*project["dependencies"], *extras)]
    return [requirement for requirement in found if requirement.name != project["name"]]


def locked() -> dict[str, str]:
    """Name -> version of all that is installed for these."""
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
    """File -> its sha256, as the package index gives it for this machine; installs nothing."""
    lines = [f"{n}=={v}" for n, v in versions.items() if n not in WITHOUT_HASH]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
        command += ["--no-deps", "--quiet", "--report", str(report), *lines]
        subprocess.run(command, check=True)
        chosen = [one["download_info"] for one in json.loads(report.read_text())["install"]]
    return {
        one["url"].rsplit("/", 1)[-1]: one["archive_info"]["hashes"]["sha256"]
        for one in sorted(chosen, key=lambda one: str(one["url"]).rsplit("/", 1)[-1].lower())
        if "sha256" in one.get("archive_info", {}).get("hashes", {})
    }


def main() -> None:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hashes", action="store_true")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    versions = locked()
    text = HEAD + "".join(f"{name}=={version}\n" for name, version in versions.items())
    if asked.check:
        known = dict(line.split() for line in HASHES.read_text().splitlines() if line[:1] != "#")
        wrong = [
            f"{name}: {known[name]} in hashes.txt, {value} in the index"
            for name, value in hashes(versions).items()
            if known.get(name, value) != value
        ]
        if LOCK.read_text() != text:
            wrong.append("constraints.lock is not what is installed: run tools/lock.py")
        sys.exit("\n".join(wrong) or 0)
    LOCK.write_text(text)
    if asked.hashes:
        found = hashes(versions).items()
        HASHES.write_text(HEAD + "".join(f"{name} {value}\n" for name, value in found))


if __name__ == "__main__":
    main()
