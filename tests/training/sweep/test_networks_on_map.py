"""Networks of a sweep on the maps of targets: coordinates, states and skipped networks."""

import json
import math
from pathlib import Path

import pytest

import nclab
from nclab.errors import DataError
from nclab.records import find_runs, glance
from nclab.records.schema import last_layer
from nclab.theory.targets import phase_maps
from nclab.training.data.artificial import Teacher
from nclab.training.data.selection import SampleSelection
from nclab.training.fleet import Recipe
from nclab.training.sweep import train_sweep
from nclab.training.sweep.networks_on_map import APART, FRAME, MERGED, SIMPLEX, sweep_points
from tests.cli.runner import call
from tests.training.sweep.small import small


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with class imbalance, runs with squared errors, and runs that fit no map."""
    out = tmp_path_factory.mktemp("runs")
    data = Teacher(samples=160, width=10, inputs=8, classes=4)
    tail = SampleSelection(imbalance=5.0)
    sgd, adamw = Recipe(epochs=4, batch=32), Recipe(epochs=4, batch=32, optimizer="adamw")
    mse = Recipe(epochs=4, batch=32, loss="mse", head_bias_decay=0.3, rate=0.01)
    plain = {"data": data, "norms": ("none",), "moments": 1}
    train_sweep(small(**plain, selection=tail, recipe=sgd), out=out, workers=0)
    train_sweep(small(**plain, recipe=mse), out=out, workers=0)
    train_sweep(small(**plain, selection=tail, recipe=adamw, seeds=(1,)), out=out, workers=0)
    long = SampleSelection(imbalance=5.0, tail="exponential")
    train_sweep(small(**plain, selection=long, recipe=sgd), out=out, workers=0)
    return out


def test_imbalance(runs: Path) -> None:
    points = sweep_points("imbalance", runs)
    assert points.options == {"large": 2, "small": 2}
    assert len(points.rows) == 2
    assert points.skipped == {
        "trained on mse": 2,
        "trained by adamw, whose weight decay is no penalty": 2,
        "with more than two class sizes": 2,
    }
    for row in points.rows:
        view = glance(runs / row["run"])
        layer = last_layer(view.last("measurement"))
        assert layer["class_counts"][0] / layer["class_counts"][-1] == row["imbalance"]
        # t sqrt n, with the features' decay inferred: λ_W |W|^2 = λ_H |H|^2.
        n, C = sum(layer["class_counts"]), 4
        H2 = sum(k * a**2 for k, a in zip(layer["class_counts"], layer["class_alpha"], strict=True))
        on_weights = view.manifest.config["member"]["weight_decay"]
        on_features = on_weights * C * layer["beta"] ** 2 / H2
        assert row["weight_decay"] == pytest.approx(math.sqrt(on_weights * on_features * n))
        assert row["state"] == (MERGED if row["cosine"] >= 0.99 else APART)


def test_bias(runs: Path) -> None:
    points = sweep_points("bias", runs)
    assert points.options == {"num_classes": 4}
    assert [row["bias_penalty"] for row in points.rows] == [0.3, 0.3]
    assert all(row["state"] in (SIMPLEX, FRAME) for row in points.rows)
    small_decay, large_decay = sorted(row["weight_decay_share"] for row in points.rows)
    assert 5 < large_decay / small_decay < 20


def test_means_that_coincide_are_merged(tmp_path: Path) -> None:
    """Records have cosines between unit features, of which class means must be normalised."""
    features = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 2.0]]
    collapse = nclab.measure_features(features, [0, 1, 2, 3], weight=features)
    row = collapse.to_dict()
    from nclab.training.sweep.networks_on_map import _mean_cosine

    assert _mean_cosine(row, range(2, 4)) == pytest.approx(1.0)
    assert _mean_cosine(row, range(2)) == pytest.approx(0.0)


def test_command(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    map_options = []

    def tiny(**options: int) -> dict[str, object]:
        map_options.append(options)
        return phase_maps.imbalance_map(**options, steps=3)

    monkeypatch.setattr(phase_maps, "MAPS", {**phase_maps.MAPS, "imbalance": tiny})
    message = ("target", "--map", "imbalance", "--runs", runs)
    done = call(*message, "--plot", tmp_path / "map.svg")
    assert done.code == 0
    assert "with 2 networks" in " ".join(done.out.split())
    assert "skipped: 2 trained on mse" in " ".join(done.out.split())
    assert map_options == [{"large": 2, "small": 2}]
    value = json.loads(call(*message, "--json").out)
    assert len(value["points"]) == 2
    assert value["skipped"]["trained on mse"] == 2


def test_bad_folders_raise_one_line(runs: Path, tmp_path: Path) -> None:
    for kind, folder, message in (
        ("depth", runs, "imbalance or bias, got --map depth"),
        ("imbalance", tmp_path / "none", "a folder of runs"),
        ("imbalance", tmp_path, "got none: no runs"),
    ):
        with pytest.raises(DataError, match=r"^Expected") as raised:
            sweep_points(kind, folder)
        assert message in str(raised.value)
    done = call("target", "--classes", 3, "--weight-decay", 0.1, "--runs", runs)
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    train_sweep(
        small(selection=SampleSelection(imbalance=5.0), norms=("none",), weight_decays=(1e-3,)),
        out=tmp_path,
        workers=0,
    )
    train_sweep(
        small(
            data=Teacher(samples=160, width=10, inputs=8, classes=5),
            norms=("none",),
            weight_decays=(1e-3,),
        ),
        out=tmp_path,
        workers=0,
    )
    with pytest.raises(DataError, match="one number of classes for a map, got"):
        sweep_points("imbalance", tmp_path)
    assert len(find_runs(tmp_path)) == 2
