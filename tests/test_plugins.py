"""Installed plugins add to every part of nclab; broken plugins are skipped."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import types
import venv
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nclab
from nclab import plugins
from nclab.errors import NclabWarning
from nclab.metrics.catalogue import Metric, plugin_metrics
from nclab.records.results import parse_json
from nclab.training.data.sources import plugin_sources

ROOT = Path(__file__).parent.parent
TEMPLATE = ROOT / "examples" / "plugin"
PROGRAM = """
import contextlib, io, json, sys
from nclab.cli.main import run

said = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["nclab", *words]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            run()
        except SystemExit as stop:
            assert not stop.code, words
    said.append(out.getvalue())
print(json.dumps(said))
"""
"""Program that runs several commands, because importing torch takes long."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Function that runs Python in a new environment with the example plugin installed."""
    place = tmp_path_factory.mktemp("plugin")
    shutil.copytree(TEMPLATE, place / "plugin")
    venv.create(place / "env", symlinks=True)
    python = place / "env" / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = place / "env" / "lib" / version / "site-packages"
    # The environment sees all installed packages; nclab itself comes from this checkout.
    (site / "here.pth").write_text(f"{ROOT / 'src'}\n{sysconfig.get_paths()['purelib']}\n")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}

    def run(*texts: object) -> str:
        done = subprocess.run(
            [python, *map(str, texts)],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    flags = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation")
    run("-m", "pip", "install", *flags, place / "plugin")
    assert run("-c", "import nclab; print(nclab.__file__)").strip() == str(nclab.__file__)
    return run


def test_an_installed_plugin_works_in_every_part(
    installed: Callable[..., str], tmp_path: Path
) -> None:
    file, runs = tmp_path / "features.npz", tmp_path / "runs"
    np.savez(file, features=np.eye(3).repeat(4, 0), labels=np.arange(3).repeat(4))
    sweep = ["sweep", "--data", "rings", "--rings-samples", "60"]
    sweep += ["--rate", "1e-3"]
    sweep += ["--weight-decay", "1e-3", "--epochs", "2", "--batch", "20"]
    sweep += ["--norm", "none", "--out", str(runs), "--json"]
    commands = [
        ["doctor", "--json"],
        ["measure", str(file)],
        [*sweep, "--workers", "1"],
        ["reproduce", "example2026", "--out", str(runs), "--seeds", "8"],
    ]
    outputs = json.loads(installed("-c", PROGRAM, json.dumps(commands)))
    examined, table, trained, reproduced = outputs

    rows = json.loads(examined)["plugins"]
    assert {(row["kind"], row["name"], row["problem"]) for row in rows} == {
        ("metrics", "mean_modes", ""),
        ("papers", "example2026", ""),
        ("papers", "nclab_papers", ""),
        ("data", "rings", ""),
    }
    assert "mean_modes" in table
    assert "directions that the class means use" in table

    [row] = json.loads(trained)
    assert 1 <= row["mean_modes"] <= 2 + 1e-9  # three classes span two directions

    assert "example2026" in reproduced
    [judged] = parse_json(runs / "claims.json")["claims"]
    assert (judged["id"], judged["verdict"]) == ("example2026/fig-1", "reproduced")
    assert judged["here"]["relation"] == "agrees"
    pages = (file for file in (runs / "report").rglob("*") if file.suffix in (".html", ".js"))
    shown = "\n".join(page.read_text() for page in pages)
    for texts in ("On the Spread of Noisy Classes", "Spread against noise", "mean_modes"):
        assert texts in shown


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Function that simulates an installed package with plugins of some kind."""

    def offer(kind: str, **things: Any) -> None:
        module = types.ModuleType("offered_by_nobody")
        for name, thing in things.items():
            setattr(module, name, thing)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        points = [EntryPoint(name, f"{module.__name__}:{name}", "") for name in things]
        points.append(EntryPoint("absent", "no_such_module_at_all", ""))
        monkeypatch.setattr(plugins, "_points", lambda own: iter(points if own == kind else []))
        forget()

    def forget() -> None:
        plugins.clear_cache()
        plugin_metrics.cache_clear()
        plugin_sources.cache_clear()

    yield offer
    monkeypatch.undo()
    forget()


def measured() -> nclab.Collapse:
    return nclab.measure_features(np.eye(3).repeat(2, 0), [0, 0, 1, 1, 2, 2])


@pytest.mark.filterwarnings("ignore:The plugin 'absent'")
def test_a_failing_metric_does_not_stop_the_measurement(offered: Any) -> None:
    def broken(moments: Any) -> float:
        raise ZeroDivisionError("by zero")

    def half(moments: Any) -> float:
        return 0.5

    both = Metric(broken, "mine", None, ""), Metric(half, "mine", float, "a half")
    offered("metrics", all=both)
    collapse = measured()
    assert collapse.broken is None
    assert collapse.notes["broken"] == "its plugin failed: ZeroDivisionError: by zero"
    assert (collapse.half, collapse.to_dict()["half"]) == (0.5, 0.5)
    assert "a half" in str(collapse)
    assert nclab.measure_features(np.eye(3), [0, 1, 2], metrics=["half"]).half == 0.5


def test_bad_metrics_are_skipped_with_a_warning(offered: Any) -> None:
    def cdnv(moments: Any) -> float:
        return 0.0

    def strange(pictures: Any) -> float:
        return 0.0

    one, other = Metric(cdnv, "mine", None, ""), Metric(strange, "mine", None, "")
    offered("metrics", one=one, other=other, third=3)
    with pytest.warns(NclabWarning) as caught:
        collapse = measured()
    texts = [str(one.message) for one in caught]
    assert len(texts) == 4
    for expected in ("ModuleNotFoundError", "a metric cdnv already", "got pictures", "got a int"):
        assert any(expected in one for one in texts), expected
    assert not hasattr(collapse, "strange")
    measured()  # does not warn again
    assert [row.problem != "" for row in plugins.installed()] == [True] * 4


@pytest.mark.filterwarnings("ignore:The plugin 'absent'")
def test_bad_data_sets_are_skipped_with_a_warning(offered: Any) -> None:
    """A data set needs a frozen dataclass, defaults, and a name that nclab does not use."""

    @dataclasses.dataclass(frozen=True)
    class Good:
        size: int = 3
        label: str = "good"

        def draw(self) -> None: ...

    thawed = dataclasses.make_dataclass("Thawed", [("label", str, "")])
    without = dataclasses.make_dataclass("Without", [("label", str, "")], frozen=True)
    offered("data", good=Good, teacher=Good, thawed=thawed, without=without)
    with pytest.warns(NclabWarning) as caught:
        assert plugin_sources() == {"good": Good}
    texts = "\n".join(str(warning.message) for warning in caught)
    for expected in ("nclab has data called teacher", "a frozen dataclass", "no attribute draw"):
        assert expected in texts
