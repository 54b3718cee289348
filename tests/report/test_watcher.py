"""The watcher follows runs that start, grow, shrink and end."""

from pathlib import Path

import pytest

from nclab.errors import RecordError
from nclab.records import open_run
from nclab.report.run_follower import RunFollower
from nclab.report.site import write_report
from nclab.report.watcher import Selection, Watcher
from tests.report.folders import train


def measurement(step: int) -> dict[str, object]:
    layers = [{"layer": name, "min_intra": step / 10} for name in ("first", "second")]
    return {"kind": "measurement", "step": step, "epoch": step / 2, "layers": layers}


@pytest.fixture
def watcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watcher:
    monkeypatch.setattr("nclab.report.watcher.REFRESH_SECONDS", 0.0)
    monkeypatch.setattr("nclab.report.watcher.SEARCH_SECONDS", 0.0)
    return Watcher(tmp_path)


def test_points_come_as_they_are_written(watcher: Watcher) -> None:
    seen: dict[str, int] = {}
    chosen = Selection("min_intra")
    with open_run(watcher.root / "one", kind="fleet", config={}, seed=0) as run:
        run.append(measurement(1))
        run.beat(step=1, total=4)
        watcher.refresh()
        (line,) = watcher.list_runs()
        assert (line["state"], line["progress"]) == ("running", 0.25)
        assert line["layers"] == ["first", "second"]
        assert watcher.curves(chosen, seen)["one"][0]["y"] == [0.1]
        assert watcher.curves(chosen, seen) == {}
        run.append(measurement(2))
        watcher.refresh()
        (curve,) = watcher.curves(chosen, seen)["one"]
        assert (curve["layer"], curve["x"], curve["y"]) == ("second", [0.5, 1], [0.1, 0.2])
        run.finish()
    watcher.refresh()
    assert watcher.list_runs()[0]["state"] == "finished"


def test_layers_are_chosen(watcher: Watcher) -> None:
    with open_run(watcher.root / "one", kind="fleet", config={}, seed=0) as run:
        run.append(measurement(1))
    watcher.refresh()

    def layers(layer: str) -> list[str]:
        found = watcher.curves(Selection("min_intra", layer), {})["one"]
        return [curve["layer"] for curve in found]

    assert layers("last") == ["second"]
    assert layers("every") == ["first", "second"]
    assert layers("=first") == ["first"]
    assert layers("=absent") == []


def test_runs_appear_and_go(watcher: Watcher) -> None:
    watcher.refresh()
    assert watcher.list_runs() == []
    open_run(watcher.root / "deep" / "er" / "one", kind="fleet", config={}, seed=0).close()
    watcher.refresh()
    assert [run["path"] for run in watcher.list_runs()] == ["deep/er/one"]
    (watcher.root / "deep/er/one/manifest.json").unlink()
    watcher.refresh()
    assert watcher.list_runs() == []


def test_a_bad_run_is_a_problem_of_its_own(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("bad", "good"):
        with open_run(watcher.root / name, kind="fleet", config={}, seed=0) as run:
            run.append(measurement(1))
    refresh = RunFollower.refresh

    def failing(run: RunFollower) -> bool:
        if run.name == "bad":
            raise RecordError("Cannot read bad/journal.jsonl")
        return refresh(run)

    monkeypatch.setattr(RunFollower, "refresh", failing)
    for _ in range(2):
        watcher.refresh()
        assert [run["name"] for run in watcher.list_runs()] == ["good"]
        assert "The run bad is skipped" in watcher.content.problems[0]


def test_a_journal_that_cannot_be_read_is_left_out(watcher: Watcher) -> None:
    with open_run(watcher.root / "bad", kind="fleet", config={}, seed=0) as run:
        run.append(measurement(1))
    watcher.refresh()
    (watcher.root / "bad/journal.jsonl").unlink()
    (watcher.root / "bad/journal.jsonl").mkdir()
    watcher.refresh()
    assert watcher.run("bad") is None
    (problem,) = watcher.content.problems
    assert problem.startswith("The run bad is skipped: Cannot read bad/journal")


def test_our_own_mistakes_are_not_called_damage(
    watcher: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_run(watcher.root / "one", kind="fleet", config={}, seed=0) as run:
        run.append(measurement(1))

    def failing(run: RunFollower) -> int:
        raise OverflowError("too large")

    watcher.refresh()
    monkeypatch.setattr(RunFollower, "last_measurement", failing)
    with pytest.raises(OverflowError, match="too large"):
        watcher.run("one")
    with pytest.raises(OverflowError, match="too large"):
        write_report(watcher.root)


def test_what_a_page_draws_is_complete(tmp_path: Path) -> None:
    train(tmp_path / "one", epochs=3)
    watcher = Watcher(tmp_path)
    watcher.refresh()
    data = watcher.run("one")
    assert data is not None
    assert {table["kind"] for table in data["tables"]} == {"epoch", "measurement"}
    assert len(data["geometry"][0]["frames"]) == len(data["cosines"]["frames"]) == 3
    assert watcher.run("absent") is None
