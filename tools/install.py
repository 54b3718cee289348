"""What `make setup` installs: every package of the lock by its hash, torch, nclab itself.

    .venv/bin/python tools/install.py [--by-version]

hashes.txt names the files for one platform; elsewhere, or with --by-version, the versions of
constraints.lock alone decide, and a line says so. torch comes after all that it needs, so that
these are the files that were checked; it has no hash itself, as its builds differ from machine to
machine. nclab is built by packages of the lock, too. Needs nothing but pip.
"""

import argparse
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK, HASHES = ROOT / "constraints.lock", ROOT / "hashes.txt"


def platform() -> str:
    """As hashes.txt has it in its heading."""
    return f"{sysconfig.get_platform()} Python {sys.version_info[0]}.{sys.version_info[1]}"


def steps(*, hashed: bool) -> list[list[str]]:
    """What pip is asked for, one call after the other."""
    torch = ["--constraint", str(LOCK), "torch"]
    if not hashed:
        return [torch, ["--constraint", str(LOCK), "--editable", f"{ROOT}[all,dev,docs]"]]
    checked = ["--no-deps", "--require-hashes", "--requirement", str(HASHES)]
    return [checked, torch, ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]]


def main() -> None:
    """Install, or say what to do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--by-version", action="store_true", help="compare no hashes")
    known = f"# For {platform()}." in HASHES.read_text().splitlines()
    hashed = known and not parser.parse_args().by_version
    if not hashed:
        print(f"Without hashes, by the versions of {LOCK.name}: {HASHES.name} is not used.")
    for step in steps(hashed=hashed):
        if subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *step]).returncode:
            advice = " Where its files do not suit this machine: make setup BY=--by-version."
            sys.exit(f"pip could not install what tools/install.py asks for.{advice * hashed}")


if __name__ == "__main__":
    main()
