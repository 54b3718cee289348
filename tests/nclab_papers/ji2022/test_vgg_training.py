"""VGG-13 trained at a tiny size: recorded, resumed to the same bits, measured as by `measure`."""

from pathlib import Path

import pytest

from nclab.measurement import measure
from nclab.records import open_run, read_run
from nclab_papers.ji2022.vgg_training import MEASURED, Config, new_trainer, read_rows, train

TINY = Config(images=20, width=0.05, epochs=6, batch=8, per_decade=5, checkpoint_every=2, rate=0.01)


def silent(step: int, total: int) -> None:
    """Ignore the progress of a training."""


class Killed(Exception):
    """Stands for a killed process."""


@pytest.mark.usefixtures("small")
def test_a_killed_run_resumes_to_the_same_bytes(tmp_path: Path) -> None:
    config = TINY
    complete, killed = tmp_path / "a" / "run", tmp_path / "b" / "run"
    train(silent, complete, config, 3)

    def killed_in(epoch: int):  # type: ignore[no-untyped-def]
        def report(step: int, total: int) -> None:
            if step == epoch:
                raise Killed

        return report

    for epoch in (1, 3, 5):
        with pytest.raises(Killed):
            train(killed_in(epoch), killed, config, 3)
    train(silent, killed, config, 3)
    assert (complete / "journal.jsonl").read_bytes() == (killed / "journal.jsonl").read_bytes()
    ends = [max((run / "checkpoints").iterdir()) for run in (complete, killed)]
    assert ends[0].name == ends[1].name
    assert ends[0].read_bytes() == ends[1].read_bytes()
    assert read_run(killed).state == "finished"


@pytest.mark.usefixtures("small")
def test_measurements_equal_those_of_measure(tmp_path: Path) -> None:
    train(silent, tmp_path / "run", TINY, 0)
    trainer = new_trainer(TINY, seed=0)
    with open_run(tmp_path / "run", kind="fig3", config=TINY.described(), seed=0) as run:
        checkpoint = run.resume(run.steps()[-1])
        assert checkpoint is not None
        trainer.load(checkpoint)
    expected = measure(trainer.model, [(trainer.inputs, trainer.labels)]).last
    last = read_rows(tmp_path / "run")[-1]
    assert last["epoch"] == TINY.epochs
    for name in MEASURED:
        assert last[name] == pytest.approx(getattr(expected, name), rel=1e-5), name
