"""A real server answers what it should, and refuses everything else."""

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import uvicorn

from nclab.errors import NclabError
from nclab.records import open_run
from nclab.report import application as application_module
from nclab.report.application import HEADERS, Responses, application, is_allowed_host
from nclab.report.server import listen
from tests.cli.runner import call
from tests.report.folders import CLAIMS, NASTY, reproduced


class Live:
    """A server on a free port, in a thread."""

    def __init__(self, root: Path, *, host: str = "127.0.0.1", token: str = "") -> None:
        self.root = root
        self._server: uvicorn.Server
        self._door = listen(host, 0)
        self.port = self._door.getsockname()[1]
        stopping = lambda: self._server.should_exit  # noqa: E731
        app = application(root, host=host, token=token, stopping=stopping)
        config = uvicorn.Config(
            app, http="h11", log_level="critical", timeout_graceful_shutdown=10, ws="none"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._door]})
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)
        self._door.close()

    def ask(
        self, path: str, *, host: str | None = None, method: str = "GET", **more: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Send one request without changing its path; return status, headers and content."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.putrequest(method, path, skip_host=True)
        if host != "":
            connection.putheader("Host", host or f"127.0.0.1:{self.port}")
        for name, value in more.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, headers, content


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("served")
    root = reproduced(folder / "runs")
    (folder / "secret.txt").write_text("secret")
    (root / "secret.txt").write_text("secret")
    server = Live(root)
    yield server
    server.stop()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost@evil"]
)
def test_foreign_names_are_refused(live: Live, host: str) -> None:
    status, headers, content = live.ask("/", host=host)
    assert status == 400
    assert content.count(b"\n") == 1
    assert "content-security-policy" in headers


def test_own_names_are_allowed(live: Live) -> None:
    for host in (f"localhost:{live.port}", "127.0.0.1", "LOCALHOST", f"[::1]:{live.port}"):
        assert live.ask("/", host=host)[0] == 200
    assert not is_allowed_host("203.0.113.5", "127.0.0.1")
    assert is_allowed_host("203.0.113.5:8000", "0.0.0.0")
    assert not is_allowed_host("evil.example", "0.0.0.0")
    assert is_allowed_host("lab.example:80", "lab.example")


@pytest.mark.parametrize(
    ("header", "host", "expected"),
    [
        ("[fd00::1]:8000", "FD00:0::1", True),
        ("[fd00::1]", "fd00::1", True),
        ("[fd00::2]", "FD00:0::1", False),
        ("[fd00::1]:8000", "0:0::0", True),
        ("evil.example", "0:0::0", False),
        ("[::1]evil.example", "127.0.0.1", False),
        ("[::1]:evil", "127.0.0.1", False),
        ("[::1", "127.0.0.1", False),
        ("[localhost]", "127.0.0.1", False),
        ("localhost:evil", "127.0.0.1", False),
        ("[0:0:0:0:0:0:0:1]:80", "127.0.0.1", True),
    ],
)
def test_addresses_are_compared_as_addresses(header: str, host: str, expected: bool) -> None:
    assert is_allowed_host(header, host) == expected


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/runs/../../secret.txt",
        "/assets/..%2f..%2fserver.py",
        "/assets/%2e%2e%2fpages.py",
        "/data/figures/..%2f..%2fclaims.json",
        "/data/numbers/..%2f..%2fsecret.txt",
        "/data/numbers/....//secret.txt",
        "/data/runs/..%5csecret.js",
        "/api/run/..%2fsecret",
        "//etc/passwd",
        "/%00",
        "/fleet/seed-0/journal.jsonl",
        "/claims.json",
        "/index.html%00.js",
    ],
)
def test_nothing_but_pages_is_served(live: Live, path: str) -> None:
    status, _, content = live.ask(path)
    assert status == 404
    assert b"secret" not in content
    assert b"root:" not in content


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_it_is_read_only(live: Live, method: str) -> None:
    status, headers, _ = live.ask("/", method=method)
    assert status == 405
    assert headers["allow"] == "GET, HEAD"


def test_every_answer_has_the_headers_that_hold_a_page_back(live: Live) -> None:
    for path in ("/", "/index.html", "/api/runs", "/assets/base.js", "/nowhere"):
        _, headers, _ = live.ask(path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert headers["x-content-type-options"] == "nosniff"
    status, _, content = live.ask("/claims.html", method="HEAD")
    assert (status, content) == (200, b"")


def test_so_has_an_error_of_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(self: Responses, request: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr(Responses, "runs", broken)
    own = Live(tmp_path)
    status, headers, content = own.ask("/api/runs")
    own.stop()
    assert status == 500
    assert {name.lower() for name in HEADERS} <= set(headers)
    assert b"ours" not in content


TOKEN = "a-token-of-our-own"


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    open_run(tmp_path / "one", kind="fleet", config={}, seed=0, name="mine").close()
    own = Live(tmp_path, host="0.0.0.0", token=TOKEN)
    try:
        for path in (
            "/",
            "/index.html",
            "/api/runs",
            "/assets/base.js",
            "/?token=guess",
            "/?token=",
        ):
            status, headers, content = own.ask(path)
            assert status == 403
            assert b"mine" not in content
            assert "content-security-policy" in headers
        assert own.ask("/", Cookie=f"nclab-{own.port}=guess")[0] == 403
        assert own.ask("/", Authorization="Bearer guess")[0] == 403
        assert own.ask("/api/runs", Authorization=f"Bearer {TOKEN}")[0] == 200
        status, headers, _ = own.ask(f"/index.html?a=1&token={TOKEN}")
        assert (status, headers["location"]) == (303, "/index.html?a=1")
        assert "HttpOnly" in headers["set-cookie"]
        assert "SameSite=strict" in headers["set-cookie"]
        cookie = headers["set-cookie"].partition(";")[0]
        assert b"mine" in own.ask("/index.html", Cookie=cookie)[2]
        away = own.ask(f"//evil.example?token={TOKEN}")[1]["location"]
        assert away == "/evil.example"
    finally:
        own.stop()


@pytest.mark.parametrize(
    ("host", "given", "asked"),
    [
        ("127.0.0.1", None, False),
        ("localhost", None, False),
        ("0.0.0.0", None, True),
        ("0.0.0.0", TOKEN, True),
        ("127.0.0.1", TOKEN, True),
    ],
)
def test_where_others_can_ask_a_token_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, given: str | None, asked: bool
) -> None:
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: sockets[0].close())
    made: list[str] = []
    monkeypatch.setattr(
        application_module, "application", lambda root, **options: made.append(options["token"])
    )
    words = ["serve", tmp_path, "--host", host, "--port", 0]
    done = call(*words, *(["--token", given] if given else []))
    assert done.code == 0
    (token,) = made
    assert bool(token) is asked
    assert (f"/?token={token} " in done.out) is asked
    assert token == given or not given
    assert not asked or given or len(token) >= 32


@pytest.mark.parametrize("token", ["short", "with spaces in it, and long", "a" * 15])
def test_a_token_that_is_easily_guessed_is_refused(tmp_path: Path, token: str) -> None:
    done = call("serve", tmp_path, "--token", token)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "at least 16" in done.err
    assert token not in done.err


def test_names_of_runs_are_escaped(live: Live) -> None:
    for path in ("/", "/index.html", "/runs.html"):
        assert NASTY.encode() not in live.ask(path)[2]
    runs = json.loads(live.ask("/api/runs")[2])
    slug = next(run["slug"] for run in runs if run["name"] == NASTY)
    assert "<" not in slug
    page = live.ask(f"/runs/{slug}.html")[2]
    assert NASTY.encode() not in page
    assert b"&lt;script&gt;" in page


def test_pages_and_what_they_load_are_there(live: Live) -> None:
    paths = [
        "/papers/pan2023.html",
        "/assets/plotly.min.js",
        "/assets/palette.js",
        "/data/figures/pan2023_fig31-bands.js",
        "/data/figures/pan2023_fig31-bands.csv",
        "/data/figures/pan2023_fig31-bands.svg",
        "/data/numbers/pan2023_fig31.json",
    ]
    for path in paths:
        assert live.ask(path)[0] == 200, path
    assert len(json.loads(live.ask("/data/claims.json")[2])) == len(CLAIMS)
    found = json.loads(live.ask("/api/curves?metric=min_intra&layer=last")[2])
    assert {len(curves) for curves in found.values()} == {1}
    assert live.ask("/data/runs/absent.js")[0] == live.ask("/api/run/absent")[0] == 404


def test_a_new_point_comes_as_an_event(tmp_path: Path) -> None:
    server = Live(tmp_path)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        with open_run(tmp_path / "one", kind="fleet", config={}, seed=0) as run:
            run.append({"kind": "measurement", "step": 1, "epoch": 1, "loss": 0.5})
            connection.request("GET", "/api/events?metric=loss")
            answer = connection.getresponse()
            assert answer.getheader("content-type", "").startswith("text/event-stream")
            first = events_until(answer, 1)
            assert first[-1]["curves"]["one"][0]["y"] == [0.5]
            assert {run["name"] for event in first for run in event.get("runs", ())} == {"one"}
            run.append({"kind": "measurement", "step": 2, "epoch": 2, "loss": 0.25})
            assert events_until(answer, 2)[-1]["curves"]["one"][0]["y"] == [0.5, 0.25]
    finally:
        connection.close()
        server.stop()


def test_the_first_measurement_chooses_what_is_shown(tmp_path: Path) -> None:
    server = Live(tmp_path)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        with open_run(tmp_path / "one", kind="fleet", config={}, seed=0) as run:
            connection.request("GET", "/api/events?metric=")
            answer = connection.getresponse()
            assert next_event(answer)["metric"] == ""
            run.append({"kind": "measurement", "step": 1, "epoch": 1, "loss": 0.5})
            found = next_event(answer)
            while found["metric"] == "":  # the heartbeat may have come before
                found = next_event(answer)
            assert found["metric"] == "loss"
            assert found["curves"]["one"][0]["y"] == [0.5]
    finally:
        connection.close()
        server.stop()


def events_until(answer: http.client.HTTPResponse, points: int) -> list[dict[str, Any]]:
    """Return the events up to the first one with so many points of the run."""
    found = [next_event(answer)]
    while not any(len(curve["y"]) == points for curve in found[-1]["curves"].get("one", ())):
        found.append(next_event(answer))
    return found


def next_event(answer: http.client.HTTPResponse) -> dict[str, Any]:
    while True:
        line = answer.readline()
        if line.startswith(b"data: "):
            found: dict[str, Any] = json.loads(line[6:])
            if "curves" in found:
                return found


def test_two_hundred_may_come_before_the_first_is_answered() -> None:
    with listen("127.0.0.1", 0) as door, ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection(door.getsockname(), timeout=0.9))


SLOW = """
import asyncio, sys
from pathlib import Path
from nclab.report import server
from nclab.report.application import Responses

async def slow(self, request):
    print("asked", flush=True)
    await asyncio.sleep(60)

Responses.runs = slow
server.serve(Path(sys.argv[1]), port=0, tell=lambda line: print(line, flush=True))
"""


def test_it_can_be_stopped_while_it_answers(tmp_path: Path) -> None:
    """uvicorn gives a request three seconds, and then logs how it was cut off."""
    program = [sys.executable, "-c", SLOW, str(tmp_path)]
    with subprocess.Popen(program, stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(re.findall(r":(\d+)/", process.stdout.readline())[0])
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(f"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            assert process.stdout.readline() == "asked\n"
            process.terminate()
            _, said = process.communicate(timeout=60)
    assert not said


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = call("serve", tmp_path, "--port", port)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert str(port) in done.err
    with pytest.raises(NclabError, match="65535"):
        listen("127.0.0.1", 70_000)
    with pytest.raises(NclabError, match="Pass another --host"):
        listen("no host", 0)


def test_the_command_lists_runs_for_machines(tmp_path: Path) -> None:
    open_run(tmp_path / "one", kind="fleet", config={}, seed=0).close()
    assert json.loads(call("serve", tmp_path, "--json").out)["runs"][0]["name"] == "one"
    missing = call("serve", tmp_path / "nowhere", "--json")
    assert (missing.code, missing.err.count("\n")) == (2, 1)
