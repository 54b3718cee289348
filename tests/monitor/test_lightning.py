"""Tests of the callback in real Lightning fits: unchanged weights, logged values, checkpoints."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import nclab
from tests.monitor.loops import assert_alike, assert_same, batches, network

L = pytest.importorskip("lightning.pytorch", reason="needs the extra lightning")

from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402
from lightning.pytorch.loggers import CSVLogger  # noqa: E402

from nclab.monitor.lightning import CollapseCallback  # noqa: E402

LAST = "net.7"
"""Name of the layer that the classifier reads."""
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated"),
]


class Classifier(L.LightningModule):  # type: ignore[name-defined, misc]
    """A small module with dropout and batch norm."""

    def __init__(self, *, dropout: float = 0.3) -> None:
        super().__init__()
        self.net = network(dropout=dropout)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.net(inputs)
        return logits

    def training_step(self, batch: Any, index: int) -> Tensor:
        inputs, labels = batch
        return nn.functional.cross_entropy(self(inputs), labels)

    def validation_step(self, batch: Any, index: int) -> None:
        inputs, labels = batch
        self.log("val_loss", nn.functional.cross_entropy(self(inputs), labels))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


class Bare(Classifier):
    """A module without a forward method that trains an inner network."""

    forward = L.LightningModule.forward

    def training_step(self, batch: Any, index: int) -> Tensor:
        inputs, labels = batch
        return nn.functional.cross_entropy(self.net(inputs), labels)

    def validation_step(self, batch: Any, index: int) -> None:
        self.net(batch[0])


class Around(Classifier):
    """A module whose training step does not call its forward method."""

    training_step = Bare.training_step


def loader(seed: int = 0, *, shuffle: bool = False) -> DataLoader[Any]:
    """Return a loader of three Gaussian clouds."""
    inputs, labels = (torch.cat(parts) for parts in zip(*batches(seed=seed), strict=True))
    return DataLoader(TensorDataset(inputs, labels), batch_size=10, shuffle=shuffle)


def fit(
    *callbacks: Any,
    model: Any = None,
    epochs: int = 2,
    resume: Path | None = None,
    shuffle: bool = True,
    **options: Any,
) -> Any:
    """Fit from a fixed seed; return the trainer."""
    torch.manual_seed(1)
    model = Classifier() if model is None else model
    plain = {"logger": False, "enable_checkpointing": False, **options}
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
        **plain,
    )
    trainer.fit(model, loader(shuffle=shuffle), loader(3), ckpt_path=resume)
    torch.rand(1)
    return trainer


def weights(trainer: Any) -> dict[str, Tensor]:
    """Return the model's state and the state of the random generator."""
    return {**trainer.lightning_module.state_dict(), "random": torch.get_rng_state()}


@pytest.fixture(scope="module")
def plain() -> dict[str, Tensor]:
    """Return the weights of a fit without the callback."""
    return weights(fit())


def test_weights_are_unchanged_and_values_are_logged(
    plain: dict[str, Tensor], tmp_path: Path
) -> None:
    callback = CollapseCallback(preset="full")
    trainer = fit(callback, logger=CSVLogger(tmp_path, name=""))
    assert_same(weights(trainer), plain)
    monitor = callback.monitor
    assert monitor.last is not None
    assert [row["epoch"] for row in monitor.history.rows if row["layer"] == LAST] == [1.0, 2.0]
    assert [row["step"] for row in monitor.history.rows if row["layer"] == LAST] == [6, 12]
    assert {row["samples"] for row in monitor.history.rows} == {60}
    scalars = monitor.last.scalars()
    assert len(scalars) > 30
    for name, value in scalars.items():
        assert float(trainer.callback_metrics[name]) == pytest.approx(value, rel=1e-6)
    text = (tmp_path / "version_0" / "metrics.csv").read_text().splitlines()
    columns, *lines = (line.split(",") for line in text)
    column = columns.index(f"nc/{LAST}/nc1_trace_ratio")
    logged = [float(line[column]) for line in lines if line[column]]
    expected = monitor.history.series("nc1_trace_ratio", LAST)[1]
    assert logged == pytest.approx(expected, rel=1e-6)
    hooks = [module._forward_pre_hooks for module in trainer.lightning_module.modules()]
    assert not any(hooks)


def test_steps_are_optimiser_steps(tmp_path: Path) -> None:
    plain = weights(fit(accumulate_grad_batches=2))
    callback = CollapseCallback("log steps", preset="economy")
    trainer = fit(callback, accumulate_grad_batches=2, logger=CSVLogger(tmp_path, name=""))
    assert_same(weights(trainer), plain)
    rows = callback.monitor.history.rows
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert {row["samples"] for row in rows} == {20}
    assert [row["epoch"] for row in rows] == pytest.approx([1 / 3, 2 / 3, 1, 4 / 3, 5 / 3, 2])
    columns, *lines = (
        line.split(",")
        for line in (tmp_path / "version_0" / "metrics.csv").read_text().splitlines()
    )
    column = columns.index(f"nc/{LAST}/cdnv")
    assert sum(bool(line[column]) for line in lines) == 6


@pytest.mark.parametrize(
    ("when", "file"),
    [
        ({"monitor": "nc/net.5/cdnv", "mode": "max"}, "epoch=0-step=6"),
        ({"every_n_train_steps": 8}, "epoch=1-step=8"),
    ],
    ids=["at the end of an epoch, after validation", "in the middle of one"],
)
@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
@pytest.mark.filterwarnings("ignore:The dirpath has changed")
def test_a_resumed_fit_continues(when: dict[str, Any], file: str, tmp_path: Path) -> None:
    def history(folder: str, resume: Path | None = None) -> list[dict[str, Any]]:
        callback = CollapseCallback(alarms=[])
        saver = ModelCheckpoint(tmp_path / folder, save_top_k=-1, **when)
        options: dict[str, Any] = {"shuffle": False, "enable_checkpointing": True, "resume": resume}
        fit(callback, saver, model=Classifier(dropout=0), **options)
        return callback.monitor.history.rows

    uninterrupted = history("whole")
    checkpoint = tmp_path / "whole" / f"{file}.ckpt"
    assert "CollapseCallback" in torch.load(checkpoint, weights_only=True)["callbacks"]
    again = history("again", checkpoint)
    assert [(row["epoch"], row["step"], row["samples"]) for row in again] == [
        (1.0, 6, 60),
        (2.0, 12, 60),
    ]
    if "monitor" in when:  # in the middle, Lightning reads this loader from its beginning again
        assert_alike(again, uninterrupted)


def test_exact_measurements_are_those_of_measure(plain: dict[str, Tensor]) -> None:
    callback = CollapseCallback(every=2, exact="val", layers="all")
    trainer = fit(callback)
    assert_same(weights(trainer), plain)
    event = callback.monitor.last
    assert event is not None
    assert (event.source, event.step, event.epoch) == ("loader", 12, 2.0)
    expected = nclab.measure(trainer.lightning_module, loader(3), layers="all")
    for ours, theirs in zip(event.layers, expected.layers, strict=True):
        assert ours.scalars() == theirs.scalars()
    name = f"nc/val/{LAST}/nc4_ncc_accuracy"
    assert float(trainer.logged_metrics[name]) == pytest.approx(expected.last.nc4_ncc_accuracy)


def test_the_inner_network_is_found_or_named() -> None:
    for callback in (CollapseCallback(), CollapseCallback(model="net")):
        fit(callback, model=Bare(), epochs=1)
        assert callback.monitor.history.rows[0]["layer"] == "7"
    with pytest.raises(nclab.ModelError, match="such as net; got 'head'"):
        fit(CollapseCallback(model="head"), model=Bare(), epochs=1)


def test_a_training_step_without_forward_raises() -> None:
    model = Around()
    with pytest.raises(nclab.ModelError, match=r"no complete forward pass .* model='net'"):
        fit(CollapseCallback(), model=model)
    assert not any(module._forward_pre_hooks for module in model.modules())


def nearest_mean_accuracy(model: Any, train: DataLoader[Any], test: DataLoader[Any]) -> float:
    """Return NC4 of one loader with the class means of another, by the definition."""
    (x, y), (z, w) = (
        [torch.cat(parts) for parts in zip(*batches, strict=True)] for batches in (train, test)
    )
    model.eval()
    with torch.no_grad():
        h, g = (model.net[:-1](part).double() for part in (x, z))
    means = torch.stack([h[y == c].mean(0) for c in range(3)])
    return float((torch.cdist(g, means).argmin(1) == w).double().mean())


@pytest.mark.parametrize("several", [True, False])
def test_train_and_validation_are_two_curves(plain: dict[str, Tensor], several: bool) -> None:
    """Measure both in one callback, or in two callbacks of one trainer."""
    if several:
        callbacks = [CollapseCallback(exact=("val", "train"))]
    else:
        callbacks = [CollapseCallback(exact="train"), CollapseCallback(exact="val")]
        assert callbacks[0].state_key != callbacks[1].state_key
    trainer = fit(*callbacks)
    assert_same(weights(trainer), plain)
    for name in (f"nc/{LAST}/cdnv", f"nc/val/{LAST}/cdnv"):
        assert name in trainer.logged_metrics
        assert name in trainer.callback_metrics
    if not several:
        return
    history = callbacks[0].monitor.history
    train, val = (history.series("nc4_ncc_accuracy", split=split) for split in ("train", "val"))
    assert train[0] == val[0] == [1.0, 2.0]
    assert history.series("nc4_ncc_accuracy") == train
    expected = nearest_mean_accuracy(trainer.lightning_module, loader(), loader(3))
    values = history.series("reference_ncc_accuracy", split="val")[1]
    assert values[-1] == expected
    name = f"nc/val/{LAST}/reference_ncc_accuracy"
    assert float(trainer.logged_metrics[name]) == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore:The dirpath has changed")
def test_a_checkpoint_keeps_the_state_of_two_callbacks(tmp_path: Path) -> None:
    def both() -> list[CollapseCallback]:
        return [CollapseCallback(exact="train"), CollapseCallback(exact="val")]

    def saver(name: str) -> ModelCheckpoint:
        return ModelCheckpoint(tmp_path / name, save_last=True)

    fit(*both(), saver("one"), enable_checkpointing=True)
    resumed, file = both(), tmp_path / "one" / "last.ckpt"
    fit(*resumed, saver("two"), epochs=3, resume=file, enable_checkpointing=True)
    for callback, split in zip(resumed, ("train", "val"), strict=True):
        assert callback.monitor.history.series("cdnv", split=split)[0] == [1.0, 2.0, 3.0]
        assert callback.monitor.history.splits == [split]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exact": "test"}, "exact='train' or 'val', a loader, a tuple of names"),
        ({"exact": ("train", "test")}, "a tuple of names or a dictionary of splits, got 'test'"),
        ({"exact": "val", "every": "5 steps"}, "Expected epochs in every="),
        ({"preset": "huge"}, "Expected preset="),
    ],
)
def test_wrong_options_raise_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(nclab.NclabError, match=message):
        CollapseCallback(**options)


def test_before_training_there_is_no_monitor() -> None:
    with pytest.raises(nclab.NclabError, match="no training with this callback has started"):
        _ = CollapseCallback().monitor
