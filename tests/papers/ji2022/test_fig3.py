"""Figure 3 of ji2022 at a tiny size: recorded, resumed bit for bit, reused, shown."""

from pathlib import Path

import pytest

from nclab.data import fashion_mnist
from nclab.data.fashion_mnist_files import FILES
from nclab.errors import MissingData, NclabError, NclabWarning
from nclab.papers.ji2022 import fig3 as ji2022_fig3
from nclab.papers.ji2022 import fig3_training as fig3_run
from nclab.papers.ji2022.fig3_training import Config, read_rows, train
from nclab.records import open_run, read_run
from nclab.text import as_text
from tests.data.idx_files import write_small

TINY = Config(images=20, width=0.05, epochs=6, batch=8, per_decade=5, checkpoint_every=2, rate=0.01)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set of 40 random images under the real names."""
    for key, file in write_small(tmp_path / "data", zipped=True, size=40).items():
        monkeypatch.setitem(FILES, key, file)
    monkeypatch.setenv("NCLAB_DATA", str(tmp_path / "data"))


def silent(step: int, total: int) -> None:
    """A report that nobody hears."""


class Killed(Exception):
    """Stands for the end of a process."""


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("accelerated", [False, True])
def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path: Path, accelerated: bool) -> None:
    config = Config(**{**vars(TINY), "clip": 1.0, "power": 0.5}) if accelerated else TINY
    whole, broken = tmp_path / "a" / "run", tmp_path / "b" / "run"
    train(silent, whole, config, 3)

    def killed_in(epoch: int):  # type: ignore[no-untyped-def]
        def report(step: int, total: int) -> None:
            if step == epoch:
                raise Killed

        return report

    for epoch in (1, 3, 5):
        with pytest.raises(Killed):
            train(killed_in(epoch), broken, config, 3)
    train(silent, broken, config, 3)
    assert (whole / "journal.jsonl").read_bytes() == (broken / "journal.jsonl").read_bytes()
    ends = [max((run / "checkpoints").iterdir()) for run in (whole, broken)]
    assert ends[0].name == ends[1].name
    assert ends[0].read_bytes() == ends[1].read_bytes()
    assert read_run(broken).state == "finished"


@pytest.mark.usefixtures("small")
def test_rows_are_measured_where_due_and_runs_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = ji2022_fig3.fig3(TINY, seeds=(0, 1), out=tmp_path, workers=0)
    assert [row["epoch"] for row in numbers["rows"]] == [0, 1, 2, 3, 4, 6] * 2
    assert [row["step"] for row in numbers["rows"][:6]] == [0, 3, 6, 9, 12, 18]
    assert {row["seed"] for row in numbers["rows"]} == {0, 1}
    assert set(numbers["findings"]) == {"fig3a", "fig3b", "fig3c", "fig3d", "sec4-realistic"}
    assert numbers["findings"]["fig3b"]["verdict"] == "open"

    shown = "\n".join(as_text(part) for part in ji2022_fig3.show(numbers))
    assert "VGG-13 × 0.05, 20 images" in shown
    assert "Fig. 3 (d)" in shown
    (picture,) = ji2022_fig3.pictures(numbers)
    assert picture.name == "ji2022_fig3"
    assert len(picture.panels) == 4

    def refuse(*arguments: object) -> None:
        raise AssertionError("a finished run was trained again")

    monkeypatch.setattr(ji2022_fig3, "train", refuse)
    assert ji2022_fig3.fig3(TINY, seeds=(0, 1), out=tmp_path, workers=0) == numbers
    with pytest.raises(NclabError, match="seed 2 failed: AssertionError"):
        ji2022_fig3.fig3(TINY, seeds=(2,), out=tmp_path, workers=0)


@pytest.mark.usefixtures("small")
def test_measurements_are_those_of_measure(tmp_path: Path) -> None:
    train(silent, tmp_path / "run", TINY, 0)
    solo = fig3_run.new_solo(TINY, seed=0)
    with open_run(tmp_path / "run", kind="fig3", config=vars(TINY), seed=0) as run:
        checkpoint = run.resume(run.steps()[-1])
        assert checkpoint is not None
        solo.load(checkpoint.tensors, checkpoint.extra)
    from nclab.measurement import measure

    expected = measure(solo.model, [(solo.inputs, solo.labels)]).last
    last = read_rows(tmp_path / "run")[-1]
    assert last["epoch"] == TINY.epochs
    for name in fig3_run.MEASURED:
        assert last[name] == pytest.approx(getattr(expected, name), rel=1e-5), name


def test_without_the_data_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(**options: object) -> None:
        raise MissingData("FashionMNIST is not here.")

    monkeypatch.setattr(fashion_mnist, "load", nothing)
    with pytest.raises(MissingData, match="not here"):
        ji2022_fig3.run(out=tmp_path)
    assert not list(tmp_path.iterdir())


def test_unknown_presets_and_repeated_seeds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NclabError, match="quick, accelerated, paper; got 'large'"):
        ji2022_fig3.run(preset="large", out=tmp_path)
    for seeds in ((), (1, 1)):
        with pytest.raises(NclabError, match="different seeds"):
            ji2022_fig3.run(seeds=seeds, out=tmp_path)


def test_presets_say_what_they_are() -> None:
    presets = ji2022_fig3.PRESETS
    assert {name: config.variant for name, config in presets.items()} == {
        "quick": "plain",
        "accelerated": "accelerated",
        "paper": "plain",
    }
    paper = presets["paper"]
    assert (paper.width, paper.images, paper.epochs, paper.device) == (1.0, 60_000, 500, "auto")
    assert len({config.run_name(0) for config in presets.values()}) == 3


@pytest.mark.usefixtures("small")
def test_a_long_training_without_gpu_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    config = Config(**{**vars(TINY), "device": "auto", "epochs": 1})
    with pytest.warns(NclabWarning, match="No GPU"):
        ji2022_fig3.fig3(config, seeds=(0,), out=tmp_path, workers=0)
