"""Options of a sweep and the names of its runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nclab
from nclab.records import glance
from nclab.training.data.artificial import Teacher
from nclab.training.data.samples import SampleFile
from nclab.training.data.selection import SampleSelection
from nclab.training.fleet import Recipe
from nclab.training.models.mlp import Shape
from nclab.training.sweep import results, train_sweep
from nclab.training.sweep.config import ALWAYS_STORED, SweepConfig, measured_epochs
from nclab.training.sweep.measure import remeasure
from tests.training.sweep.small import small


def test_a_member_for_every_norm_weight_decay_and_seed() -> None:
    config = small(seeds=(0, 5))
    members = [(member.norm, member.weight_decay, member.seed) for member in config.members]
    assert members[:3] == [("affine", 1e-3, 0), ("affine", 1e-3, 5), ("affine", 1e-2, 0)]
    assert len(set(members)) == len(members) == 8


def test_names_are_readable_and_differ_with_every_option() -> None:
    samples = small().data.draw()
    [first, *_] = small().plan(samples)
    assert first.name.startswith("teacher3_L3_w8_affine_wd1e-3_s0_")
    changes: list[dict[str, Any]] = [
        {"recipe": Recipe(epochs=9, batch=32)},
        {"recipe": Recipe(epochs=8, batch=32, rate=0.1)},
        {"layers": "all"},
        {"statistics": "full"},
        {"moments": 2},
        {"data": Teacher(samples=130, width=10, inputs=8, seed=1)},
        {"shape": Shape(layers=3, width=8, bias=False)},
        {"shape": Shape(layers=3, width=8, activation="tanh")},
        {"recipe": Recipe(epochs=8, batch=32, optimizer="adam")},
        {"recipe": Recipe(epochs=8, batch=32, optimizer="adam", beta2=0.9)},
        {"selection": SampleSelection(label_noise=0.1)},
    ]
    plans = [small(**change) for change in changes]
    names = {plan.plan(*plan.draw())[0].name for plan in plans} | {first.name}
    assert len(names) == len(changes) + 1
    same = small(checkpoint_every=5, converged=0.5)  # neither changes a number of the run
    assert same.plan(samples)[0].name == first.name


def test_existing_runs_keep_their_names() -> None:
    """A different name would train existing runs again."""
    [first, *_] = small().plan(small().data.draw())
    assert first.name == "teacher3_L3_w8_affine_wd1e-3_s0_c9f0e3ca"
    assert set(first.config["recipe"]) == set(ALWAYS_STORED["recipe"])


def test_focal_gamma_is_stored_under_its_first_name(tmp_path: Path) -> None:
    """Runs of version 0.1.0 with a focal loss keep their name, are read and are continued."""
    recipe = Recipe(epochs=8, batch=32, loss="focal", focal_gamma=3.0)
    config = small(recipe=recipe, norms=("affine",), weight_decays=(1e-3,))
    [plan] = config.plan(config.data.draw())
    assert plan.name == "teacher3_L3_w8_focal_affine_wd1e-3_s0_fb71b170"
    assert plan.config["recipe"]["focusing"] == 3.0
    assert "focal_gamma" not in plan.config["recipe"]
    [row] = train_sweep(config, tmp_path, workers=0)
    assert row["focal_gamma"] == results(tmp_path)[0]["focal_gamma"] == 3.0
    view = glance(tmp_path / plan.name)
    epoch, [layer] = remeasure(view.folder, view.manifest)
    assert (epoch, layer["min_intra"]) == (8, pytest.approx(row["min_intra"], rel=1e-3))


def test_runs_of_a_file_are_named_by_its_content_not_its_path(tmp_path: Path) -> None:
    arrays = {"X": np.arange(12.0).reshape(6, 2), "y": np.array([0, 1] * 3)}
    (tmp_path / "there").mkdir()
    for file in ("mine.npz", "there/mine.npz"):
        np.savez(tmp_path / file, **arrays)  # type: ignore[arg-type]
    np.savez(tmp_path / "there" / "other.npz", X=arrays["X"] + 1, y=arrays["y"])
    names = []
    for file in ("mine.npz", "there/mine.npz", "there/other.npz"):
        config = small(data=SampleFile(str(tmp_path / file)))
        names.append(config.plan(config.data.draw())[0].name)
    assert names[0] == names[1]
    assert names[0].startswith("mine_L3_w8_affine_wd1e-3_s0_")
    assert names[2].rsplit("_")[-1] != names[0].rsplit("_")[-1]


def test_measured_epochs_end_with_the_last() -> None:
    for epochs in (1, 2, 7, 300):
        for moments in (1, 2, 12, 40):
            measured = measured_epochs(epochs, moments)
            assert measured[-1] == epochs
            assert measured == sorted(set(measured))
            assert len(measured) <= moments
            assert measured[0] >= 1


def test_measuring_stays_cheap_by_default() -> None:
    assert len(SweepConfig().measured_epochs) == 12
    assert SweepConfig(recipe=Recipe(epochs=30)).measured_epochs == [30]


def test_checkpoints_are_rarer_where_epochs_are_cheap() -> None:
    samples = Teacher().draw()
    wide, narrow = SweepConfig(), SweepConfig(shape=Shape(width=32))
    assert wide.checkpoint_epochs(samples) < narrow.checkpoint_epochs(samples)
    assert small().checkpoint_epochs(samples) == 2
    tiny = small(checkpoint_every=None)
    assert tiny.checkpoint_epochs(tiny.data.draw()) == 2  # a quarter of eight epochs


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"norms": ("layer",)}, "'plain', 'none' or 'last', got 'layer'"),
        ({"norms": ()}, "at least one of norms"),
        ({"weight_decays": (-1e-3,)}, "0 <= weight_decay < inf, got -0.001"),
        ({"weight_decays": (float("nan"),)}, "0 <= weight_decay < inf, got nan"),
        ({"seeds": (1, 1)}, r"without repetition, got \[1, 1\]"),
        ({"recipe": Recipe(epochs=0)}, "epochs of at least 1"),
        ({"shape": Shape(layers=1)}, "at least 2 layers"),
        ({"moments": 0}, "moments of at least 1"),
        ({"checkpoint_every": 0}, "checkpoint_every of at least 1"),
        ({"layers": "some"}, "'last' or 'all', got 'some'"),
        ({"statistics": "none"}, "'running' or 'full', got 'none'"),
    ],
)
def test_bad_options_raise_one_clear_line(changes: dict[str, Any], pattern: str) -> None:
    with pytest.raises(nclab.NclabError, match=pattern):
        small(**changes)
