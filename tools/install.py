"""Install what `make setup` needs: all locked packages by their hashes, torch, and nclab itself.

    .venv/bin/python tools/install.py [--by-version]

hashes.txt lists files for one platform. On other platforms, or with --by-version, pip compares only
the versions in constraints.lock and prints a line about it. torch is installed last, so that its
dependencies are the files whose hashes were checked. torch itself has no hash, because its builds
differ between machines. nclab is built with packages of the lock. This script needs only pip.
"""

import argparse
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK, HASHES = ROOT / "constraints.lock", ROOT / "hashes.txt"


def platform() -> str:
    """Return the name of this platform as in the header of hashes.txt."""
    return f"{sysconfig.get_platform()} Python {sys.version_info[0]}.{sys.version_info[1]}"


def steps(*, hashed: bool) -> list[list[str]]:
    """Return the arguments of each call of `pip install`, in order."""
    torch = ["--constraint", str(LOCK), "torch"]
    if not hashed:
        return [torch, ["--constraint", str(LOCK), "--editable", f"{ROOT}[all,dev,docs]"]]
    checked = ["--no-deps", "--require-hashes", "--requirement", str(HASHES)]
    return [checked, torch, ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]]


def main() -> None:
    """Install everything, or exit with advice."""
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
