"""Two simulated machines: namespaces with separate names, addresses and file systems.

`python -m tests.engine.machines FOLDER COMMAND…` starts a Ray cluster over both and runs a command
on the first; FOLDER is /mnt there, shared by both, while /tmp is each one's own. It needs root,
`unshare`, `nsenter` and `ip`. Nothing outside the namespaces is changed, and all of it is gone when
they end, at the latest after `LIFE_SECONDS`.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SHARED = Path("/mnt")
NETWORK = "10.213.7"
ADDRESS = f"{NETWORK}.1:6379"
LIFE_SECONDS = 900
NAMESPACES = ("--net", "--mount", "--uts", "--pid")
UNSHARE = ("unshare", *NAMESPACES, "--fork")
RAY = (sys.executable, "-c", "from ray.scripts.scripts import main; main()", "start")
SMALL = ("--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats")


def reason_without() -> str | None:
    """Return why namespaces are impossible on this machine; None if they are possible."""
    missing = [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True)
    return None if tried.returncode == 0 else "needs the right to make namespaces (root)"


@dataclass(frozen=True)
class Machine:
    """A simulated machine, identified by the process that keeps its namespaces alive."""

    name: str
    address: str
    pid: int

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return a command that runs the arguments on this machine."""
        return ["nsenter", f"--target={self.pid}", *NAMESPACES, *arguments]

    def run(self, *arguments: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command on this machine and wait for its end."""
        command = self.command(arguments)
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds)


@contextmanager
def two_machines(shared: Path) -> Iterator[list[Machine]]:
    """Yield two connected machines; both see `shared` as /mnt but have separate /tmp."""
    holders = [
        subprocess.Popen([*UNSHARE, "--kill-child", "--mount-proc", "sleep", str(LIFE_SECONDS)])
        for _ in range(2)
    ]
    try:
        pids = [_child_of(holder.pid) for holder in holders]
        machines = [
            Machine(f"nclab-{name}", f"{NETWORK}.{number}", pid)
            for name, number, pid in zip("ab", (1, 2), pids, strict=True)
        ]
        cable = f"ip link add cable type veth peer name cable netns {pids[1]}"
        _done(subprocess.run(["nsenter", f"--target={pids[0]}", "--net", *cable.split()]))
        for machine in machines:
            steps = (
                "mount --make-rprivate /",
                f"hostname {machine.name}",
                f"mount --bind '{shared}' {SHARED}",
                "mount -t tmpfs own /tmp",
                "mount -t tmpfs own /dev/shm",
                "ip link set lo up",
                f"ip address add {machine.address}/24 dev cable",
                "ip link set cable up",
            )
            _done(machine.run("sh", "-c", " && ".join(steps)))
        yield machines
    finally:
        for holder in holders:
            holder.kill()  # and with it every process of the machine
            holder.wait()


def start_ray(machines: Sequence[Machine]) -> None:
    """Start a Ray cluster with one core on each machine."""
    head, *others = machines
    port = ADDRESS.rpartition(":")[2]
    first = ("--head", f"--node-ip-address={head.address}", f"--port={port}")
    _done(head.run(*RAY, *first, "--include-dashboard=false", *SMALL))
    for other in others:
        head_address = (f"--address={ADDRESS}", f"--node-ip-address={other.address}")
        _done(other.run(*RAY, *head_address, *SMALL))


def _child_of(pid: int) -> int:
    """Return the first process in the namespaces, which `unshare` starts when they are ready."""
    patience = time.monotonic() + 30
    while time.monotonic() < patience:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children and Path(f"/proc/{children[0]}/comm").read_text().strip() == "sleep":
            return int(children[0])
        time.sleep(0.02)
    raise TimeoutError("no namespaces within 30 seconds")


def _done(ran: "subprocess.CompletedProcess[str] | subprocess.CompletedProcess[bytes]") -> None:
    assert ran.returncode == 0, ran.stderr


if __name__ == "__main__":
    with two_machines(Path(sys.argv[1]).absolute()) as both:
        start_ray(both)
        sys.exit(subprocess.run(both[0].command(sys.argv[2:])).returncode)
