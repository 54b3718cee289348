"""A folder with hostile files: every view shows the good runs, names the others, reads nothing
outside the folder, and needs little memory and time."""

import json
import os
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from nclab import files
from nclab.records import find_runs, read_run
from nclab.records.read import SkippedPath
from tests.cli.runner import Done, call
from tests.kills import forked
from tests.report import hostile
from tests.report.test_server import Live

MEGABYTE = 1 << 20
SECONDS = 100
GOOD = ("the first good one", "the last good one")
SAID = (
    "up",
    "loop",
    "linked",
    "deep/er/linked",
    *(f"{kind}-manifest.json" for kind in ("fifo", "link", "sparse")),
)


def within_bounds(work: Callable[[], Done], *, memory: int, told: Path) -> Done:
    """Return the output of a call in a process with limited memory and time."""

    def bounded() -> None:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + memory, now + memory))
        signal.alarm(SECONDS)
        told.write_text(json.dumps(work()))

    status = os.waitpid(forked(bounded), 0)[1]
    assert status == 0, f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else status
    return Done(*json.loads(told.read_text()))


def check(root: Path, told: Path, *, memory: int) -> None:
    """Run every command on one folder."""
    listed = within_bounds(lambda: call("runs", root, "--json"), memory=memory, told=told)
    assert listed.code == 0
    rows = {row["name"]: row for row in json.loads(listed.out)}
    assert set(GOOD) <= set(rows)
    for name in ("fifo", "link", "device", "loop", "folder", "sparse"):
        assert rows[f"{name}-journal.jsonl"]["problem"], name
        assert "state.json" in rows[f"{name}-state.json"]["problem"]
    assert rows["long line"]["problem"]
    assert all(f"{root}/{name}" in listed.err for name in SAID)

    exported = within_bounds(lambda: call("export", root, "--json"), memory=memory, told=told)
    assert exported.code == 0
    assert set(GOOD) <= {row["run"] for row in json.loads(exported.out)}
    assert all(f"{root}/{name}" in exported.err for name in SAID)
    for name in ("fifo", "link", "device", "loop", "folder"):
        assert f"{root}/{name}-journal.jsonl" in exported.err, name

    verified = within_bounds(lambda: call("verify", root, "--json"), memory=memory, told=told)
    assert verified.code == 1
    states = {one["file"]: one["state"] for one in json.loads(verified.out)}
    assert states["first/journal.jsonl"] == states["zz-last/journal.jsonl"] == "good"
    for name in ("fifo", "link", "device", "loop", "folder", "sparse"):
        assert states[f"{name}-journal.jsonl/journal.jsonl"] == "damaged", name
        assert states[f"{name}-manifest.json/manifest.json"] == "damaged", name
    assert states["linked"] == states["up"] == "skipped"
    assert states["checkpoint/checkpoints/step-000000001.safetensors"] == "damaged"
    assert states["ji2022_sparse/numbers.json"] == states["claims.json"] == "damaged"

    served = within_bounds(lambda: call("serve", root, "--json"), memory=memory, told=told)
    assert set(GOOD) <= {row["name"] for row in json.loads(served.out)["runs"]}
    report = within_bounds(lambda: call("report", root), memory=memory, told=told)
    assert report.code == 0, report.err
    page = (root / "report" / "index.html").read_text()
    problems = page.partition("Could not be read")[2]
    shown = (root / "report" / "data" / "compare.js").read_text()
    assert all(name in shown for name in GOOD)
    assert all(name in problems for name in SAID)
    for name in ("long line", "sparse-journal.jsonl", "fifo-journal.jsonl", "claims.json"):
        assert name in problems, name
    for name in ("pan2023_odd/sparse.png", "pan2023_odd/secret.png", "ji2022_linked/numbers.json"):
        assert name in problems, name
    for file in (root / "report").rglob("*"):
        assert not file.is_file() or b"TOP-SECRET" not in file.read_bytes(), file
    for done in (listed, exported, verified, served, report):
        assert "TOP-SECRET" not in done.out + done.err


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Return a folder with the folder `runs` and a folder `outside` with secrets."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # hundreds of flushes
    with tempfile.TemporaryDirectory(dir=memory) as name:
        place = Path(name)
        hostile.folder(
            place / "runs", place / "outside", size=600 * MEGABYTE, long_line=70 * MEGABYTE
        )
        yield place


def test_one_bad_entry_hides_no_other(place: Path) -> None:
    check(place / "runs", place / "told", memory=500 * MEGABYTE)


@pytest.mark.slow
def test_two_gigabytes_and_a_line_of_a_hundred_megabytes(tmp_path: Path) -> None:
    root, outside = tmp_path / "runs", tmp_path / "outside"
    hostile.folder(root, outside, size=2048 * MEGABYTE, long_line=100_000_000)
    check(root, tmp_path / "told", memory=500 * MEGABYTE)


def test_a_server_answers_whatever_lies_there(place: Path) -> None:
    server = Live(place / "runs")
    try:
        page = server.ask("/index.html")[2].decode()
        assert all(name in page for name in SAID)
        runs = json.loads(server.ask("/api/runs")[2])
        assert set(GOOD) <= {row["name"] for row in runs}
        slugs = [row["slug"] for row in runs]
        paths = [
            "/",
            "/runs.html",
            "/claims.html",
            "/papers/other.html",
            "/api/curves?metric=min_intra",
        ]
        paths += [
            f"/{kind}/{slug}{end}"
            for slug in slugs
            for kind, end in (("runs", ".html"), ("api/run", ""))
        ]
        for path in paths:
            status, headers, content = server.ask(path)
            assert status == 200, path
            assert b"TOP-SECRET" not in content
            assert "content-security-policy" in headers
    finally:
        server.stop()


def test_what_is_replaced_by_a_link_while_serving_is_not_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "runs", tmp_path / "outside"
    for name in ("one", "two", "three"):
        hostile.run(root / name)
    hostile.run(outside / "secret", name="TOP-SECRET")
    (outside / "picture.png").write_bytes(b"TOP-SECRET")
    experiment = root / "pan2023_x"
    experiment.mkdir()
    (experiment / "numbers.json").write_text("{}")
    (experiment / "a.png").write_bytes(b"an image")
    server = Live(root)
    try:
        image = "/data/figures/pan2023_x-a.png"
        assert server.ask(image)[2] == b"an image"
        assert server.ask("/runs/one.html")[0] == 200
        hostile.link(experiment / "a.png", outside / "picture.png")
        assert server.ask(image)[0] == 404
        hostile.link(root / "one" / "journal.jsonl", outside / "secret" / "journal.jsonl")
        (root / "two").rename(tmp_path / "moved")
        (root / "two").symlink_to(outside / "secret")
        hostile.link(root / "three" / "manifest.json", outside / "secret" / "manifest.json")
        server.ask("/none.html")  # not there: so it looks at everything again
        page = server.ask("/index.html")[2].decode()
        assert "TOP-SECRET" not in page
        for said in (
            "The run one is skipped",
            "The link two is not followed",
            "three/manifest.json",
        ):
            assert said in page
        for path in ("/api/runs", "/", "/api/run/one", "/api/run/two", "/runs/two.html"):
            assert b"TOP-SECRET" not in server.ask(path)[2]
    finally:
        server.stop()


def test_a_folder_that_may_not_be_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "closed", "z"):
        hostile.run(tmp_path / "runs" / name / "run")
    open_folder = files._open_folder

    def refused(path: Path, root: Path) -> AbstractContextManager[int]:
        if path.name == "closed":  # root may read it, whatever its mode
            raise PermissionError(13, "Permission denied", str(path))
        return open_folder(path, root)

    monkeypatch.setattr(files, "_open_folder", refused)
    skipped: list[SkippedPath] = []
    found = find_runs(tmp_path / "runs", skipped=skipped)
    assert [path.parent.name for path in found] == ["a", "z"]
    assert [one.path.name for one in skipped] == ["closed"]
    assert "closed: Permission denied" in call("runs", tmp_path / "runs").err
    assert call("report", tmp_path / "runs").code == 0
    assert "closed: Permission denied" in (tmp_path / "runs/report/index.html").read_text()


def test_who_asks_for_a_linked_run_itself_gets_it(tmp_path: Path) -> None:
    hostile.run(tmp_path / "runs" / "one")
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    assert len(find_runs(tmp_path / "link")) == 1
    assert len(read_run(tmp_path / "link" / "one").records) == 1
