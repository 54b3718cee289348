"""Tests of the monitor: estimates, exact measurements, schedules, errors and state."""

import io
import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nclab
from nclab.errors import DataError, NclabError, NclabWarning
from nclab.metrics.catalogue import METRICS
from nclab.monitor.event import Event
from nclab.monitor.monitor import Every, Logarithmic
from tests.monitor.loops import CLASSES, batches, network, train

ONE_PASS = [metric.name for metric in METRICS if metric.needs not in ("second pass", "both")]


def close(ours: float | None, theirs: float | None, rel: float = 1e-9) -> bool:
    """Assert that both values are missing or nearly equal."""
    if ours is None or theirs is None:
        return ours is theirs
    return math.isclose(ours, theirs, rel_tol=rel, abs_tol=1e-12)


def still(monitor: nclab.Monitor, model: nn.Module, loader: Any, epochs: int = 1) -> None:
    """Run forward passes under a monitor without changing the weights."""
    for _ in range(epochs):
        for inputs, labels in monitor.watch(loader):
            nn.functional.cross_entropy(model(inputs), labels).backward()


def passes(monitor: nclab.Monitor, model: nn.Module, inputs: list[Tensor], labels: Any) -> None:
    """Run forward passes on inputs that may not fit the labels."""
    for batch, _ in zip(inputs, monitor.watch([(None, each) for each in labels]), strict=True):
        model(batch)


@pytest.mark.parametrize("preset", ["economy", "standard", "full"])
def test_constant_weights_give_the_exact_measurement(preset: str) -> None:
    model, loader = network(norm=False).double(), [(x.double(), y) for x, y in batches()]
    with nclab.Monitor(model, preset=preset) as monitor:
        still(monitor, model, loader)
    layers = "all" if preset == "full" else "last"
    exact = nclab.measure(model, loader, layers=layers)
    assert monitor.last is not None
    assert [c.layer for c in monitor.last.layers] == [c.layer for c in exact.layers]
    for ours, theirs in zip(monitor.last.layers, exact.layers, strict=True):
        for name in ONE_PASS:
            value = getattr(theirs, name)
            if preset == "economy" and name == "nc1_trace_pinv":
                value = None
            assert close(getattr(ours, name), value), name
    assert "running estimate" in monitor.last.report.remarks[-1]
    assert "monitor.measure" in monitor.last.layers[-1].notes["nc4_ncc_accuracy"]


def test_maps_of_a_convolution_are_pooled_as_in_measure() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3)
    )
    loader = [(torch.randn(20, 1, 6, 6), torch.arange(20) % 3) for _ in range(3)]
    with nclab.Monitor(model, preset="full") as monitor:
        still(monitor, model, loader)
    exact = nclab.measure(model, loader, layers="all")
    assert monitor.last is not None
    for ours, theirs in zip(monitor.last.layers, exact.layers, strict=True):
        assert (ours.layer, ours.dim) == (theirs.layer, theirs.dim)
        assert ours.cdnv == pytest.approx(theirs.cdnv, rel=1e-4)


def test_measure_is_nclab_measure() -> None:
    model = network(dropout=0.3)
    train(model, None)
    with nclab.Monitor(model, preset="full") as monitor:
        ours = monitor.measure(batches(seed=5))
    theirs = nclab.measure(model, batches(seed=5), layers="all")
    assert [c.to_dict() for c in ours.layers] == [c.to_dict() for c in theirs.layers]
    assert monitor.last is not None
    assert monitor.last.source == "loader"


def test_measurements_of_an_unwatched_loop_are_separate_points() -> None:
    events: list[Event] = []
    with nclab.Monitor(network(), preset="full", sinks=events.append) as monitor:
        for epoch in (1, 2, 3):
            monitor.measure(batches(seed=epoch), epoch=epoch, step=6 * epoch)
    assert [(event.step, event.epoch) for event in events] == [(6, 1.0), (12, 2.0), (18, 3.0)]
    assert (monitor.steps, monitor.epochs) == (18, 3)
    epochs, values = monitor.history.series("cdnv")
    assert epochs == [1.0, 2.0, 3.0]
    assert values == [event.layers[-1].cdnv for event in events]


def test_every_measurement_is_a_point_even_at_one_step() -> None:
    events: list[Event] = []
    with nclab.Monitor(network(), preset="full", sinks=events.append) as monitor:
        for seed in range(3):
            monitor.measure(batches(seed=seed))
    again = nclab.Monitor(network(), preset="full")
    again.load_state_dict(monitor.state_dict())
    again.measure(batches(seed=3))
    assert monitor.history.series("cdnv")[1] == [event.layers[-1].cdnv for event in events]
    assert len(again.history.series("cdnv")[1]) == 4


def test_explicit_calls_do_what_watch_does() -> None:
    histories = []
    for explicit in (False, True):
        model = network()
        with nclab.Monitor(model, preset="full") as monitor:
            if explicit:
                for _ in range(2):
                    for inputs, labels in batches():
                        monitor.observe(labels)
                        nn.functional.cross_entropy(model(inputs), labels).backward()
                    monitor.epoch_end()
            else:
                still(monitor, model, batches(), epochs=2)
        histories.append(monitor.history.rows)
        assert (monitor.steps, monitor.epochs) == (12, 2)
    assert histories[0] == histories[1]


def test_batches_and_attributes_of_the_loader_are_unchanged() -> None:
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.randn(12, 4), torch.arange(12) % 3), batch_size=4
    )
    model = network()
    with nclab.Monitor(model) as monitor:
        watched = monitor.watch(loader)
        assert len(watched) == 3
        assert watched.batch_size == 4
        for inputs, _ in watched:
            model(inputs)
    mapping = {"x": torch.randn(6, 4), "labels": torch.arange(6) % 3}
    with nclab.Monitor(model) as monitor:
        for batch in monitor.watch([mapping]):
            assert batch is mapping
            model(batch["x"])
    assert monitor.last is not None
    assert monitor.last.report.samples == 6


def events_of(every: Any, epochs: int) -> list[tuple[int, float, int]]:
    model = network()
    events: list[Event] = []
    with nclab.Monitor(model, every=every, sinks=events.append) as monitor:
        still(monitor, model, batches(), epochs=epochs)
    return [(event.step, event.epoch, event.report.samples) for event in events]


def test_schedules() -> None:
    assert events_of(2, 5) == [(12, 2.0, 60), (24, 4.0, 60)]
    assert events_of("4 steps", 2) == [(4, 4 / 6, 40), (8, 1 + 2 / 6, 40), (12, 2.0, 40)]
    assert events_of(Every(6, "steps", window=2), 2) == [(6, 1.0, 20), (12, 2.0, 20)]
    assert [epoch for _, epoch, _ in events_of(Logarithmic(3), 10)] == [1, 2, 5, 10]
    assert [step for step, _, _ in events_of(Logarithmic(3, "steps"), 2)] == [1, 2, 5, 10]


def test_no_hooks_between_measurements() -> None:
    model = network()
    with nclab.Monitor(model, every=2) as monitor:
        for epoch in range(4):
            for inputs, _ in monitor.watch(batches()):
                hooked = any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
                assert hooked == (epoch % 2 == 1) or (epoch == 0 and not model[-1]._forward_hooks)
                model(inputs)


def test_a_loop_left_early_is_measured() -> None:
    model = network()
    with nclab.Monitor(model) as monitor:
        for _ in range(2):
            for number, (inputs, _) in enumerate(monitor.watch(batches())):
                model(inputs)
                if number == 2:
                    break
    assert [(row["epoch"], row["samples"]) for row in monitor.history.rows] == [(1, 30), (2, 30)]


def test_evaluation_between_batches_is_not_measured() -> None:
    model = network()
    with nclab.Monitor(model) as monitor:
        for inputs, labels in monitor.watch(batches()):
            model.eval()
            model(torch.randn(10, 4))
            model.train()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            model(torch.randn(10, 4))  # a second forward pass of the same step
    assert monitor.last is not None
    assert monitor.last.report.samples == 60
    assert monitor.last.layers[-1].accuracy == pytest.approx(
        _accuracy_in_training_mode(network(), batches())
    )


def _accuracy_in_training_mode(model: nn.Module, loader: list[tuple[Tensor, Tensor]]) -> float:
    right = sum(int((model(x).argmax(1) == y).sum()) for x, y in loader)
    return right / sum(len(y) for _, y in loader)


def test_labels_after_the_forward_pass_raise() -> None:
    model = network()
    with nclab.Monitor(model) as monitor:
        model(batches()[0][0])
        with pytest.raises(nclab.DataError, match="before the forward pass"):
            monitor.observe(batches()[0][1])


def test_a_training_on_unknown_batches_warns() -> None:
    model, loader = network(), batches()

    def unseen() -> None:
        with nclab.Monitor(model):
            for inputs, labels in loader:
                nn.functional.cross_entropy(model(inputs), labels).backward()

    with pytest.warns(NclabWarning, match="measured nothing.*watch"):
        unseen()
    with nclab.Monitor(model) as monitor:  # a loop that calls monitor.measure itself
        model(loader[0][0])
        monitor.measure(loader)


def test_a_model_in_evaluation_mode_raises() -> None:
    model = network().eval()
    with pytest.raises(nclab.ModelError, match=r"model.train\(\)"), nclab.Monitor(model) as monitor:
        still(monitor, model, batches())


def test_labels_that_do_not_fit_the_first_batch_raise() -> None:
    model = network()
    twice = [torch.cat([inputs, inputs]) for inputs, _ in batches()]
    with pytest.raises(nclab.ModelError, match="does not fit"), nclab.Monitor(model) as monitor:
        passes(monitor, model, twice, [labels for _, labels in batches()])


def test_labels_that_do_not_fit_a_later_batch_warn_once() -> None:
    model = network()
    short = [x if number < 3 else x[:-1] for number, (x, _) in enumerate(batches())]
    warns = pytest.warns(nclab.NclabWarning, match="The monitor skipped a batch")
    with warns as warned, nclab.Monitor(model) as monitor:
        passes(monitor, model, short, [labels for _, labels in batches()])
    assert len(warned) == 1
    assert monitor.last is not None
    assert monitor.last.report.samples == 30


def test_soft_labels_raise() -> None:
    model = network()
    with pytest.raises(nclab.DataError, match="hard labels"), nclab.Monitor(model) as monitor:
        monitor.observe(torch.rand(10, CLASSES))


def test_wrong_labels_are_named() -> None:
    model = network()
    with pytest.raises(nclab.DataError, match="got 7"), nclab.Monitor(model) as monitor:
        passes(monitor, model, [x for x, _ in batches()], [y + 5 for _, y in batches()])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"preset": "huge"}, "economy"),
        ({"every": 0}, "1 or more"),
        ({"every": "sometimes"}, "500 steps"),
        ({"layers": ["nowhere"]}, "name of a module"),
        ({"pool": "max"}, "flatten"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(nclab.NclabError, match=text):
        nclab.Monitor(network(), **options)


def test_sharded_or_parallel_models_raise() -> None:
    class FullyShardedSomething(nn.Sequential):
        pass

    model = FullyShardedSomething(nn.Linear(4, 3))
    with pytest.raises(nclab.ModelError, match="FSDP"), nclab.Monitor(model) as monitor:
        still(monitor, model, batches())
    spread = nn.DataParallel(network())
    spread.device_ids = [0, 1]
    with pytest.raises(nclab.ModelError, match="DataParallel"), nclab.Monitor(spread) as monitor:
        still(monitor, spread, batches())


def test_named_layers_and_tokens() -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(11, 8)
            self.mix = nn.Linear(8, 8)
            self.fc = nn.Linear(8, CLASSES)

        def forward(self, words: Tensor) -> Tensor:
            logits: Tensor = self.fc(self.mix(self.embed(words)).relu())
            return logits

    torch.manual_seed(0)
    words = torch.randint(11, (6, 5))
    labels = words % CLASSES
    labels[:, 0] = -100
    model = Tagger()
    with nclab.Monitor(model, layers=["mix", "fc.input"]) as monitor:
        for inputs, _ in monitor.watch([(words, labels)]):
            model(inputs)
    assert monitor.last is not None
    assert [(c.layer, c.samples, c.ignored) for c in monitor.last.layers] == [
        ("mix", 24, 6),
        ("fc.input", 24, 6),
    ]
    assert monitor.last.layers[-1].loss is not None


def test_a_state_continues_in_the_middle_of_an_epoch() -> None:
    model, loader = network(norm=False), batches()
    with nclab.Monitor(model, preset="full") as monitor:
        still(monitor, model, loader)
    expected = monitor.history.rows
    model = network(norm=False)
    with nclab.Monitor(model, preset="full") as first:
        for number, (inputs, _) in enumerate(first.watch(loader[:3]), start=1):
            model(inputs)
            if number == 3:
                first.step()
                state = first.state_dict()
                break
        first.load_state_dict(state)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    with nclab.Monitor(model, preset="full") as second:
        second.load_state_dict(torch.load(buffer, weights_only=True))
        still(second, model, loader[3:])
    assert second.history.rows[-2]["samples"] == 60
    for ours, theirs in zip(second.history.rows, expected, strict=True):
        for name in ("min_intra", "cdnv", "loss"):
            assert close(ours[name], theirs[name], rel=1e-6), name


def test_a_healthy_run_has_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings(), nclab.Monitor(model := network()) as monitor:
        warnings.simplefilter("error")
        train(model, monitor, epochs=3)
    assert not [alarm for alarm in monitor.alarms if alarm.severe]
    assert not caplog.records


def test_features_that_are_all_nan_are_skipped_in_one_line() -> None:
    model = network()
    inputs, labels = torch.full((12, 4), torch.nan), torch.arange(12) % 3
    with nclab.Monitor(model) as monitor:
        for batch, _ in monitor.watch([(inputs, labels)]):
            model(batch)
    assert monitor.last is not None
    report = monitor.last.report
    assert not any("a function of it" in remark for remark in report.remarks)
    asks: list[Callable[[], object]] = [lambda: report.last, report.certificate, report.plot]
    for ask in asks:
        with pytest.raises(DataError, match="finite features of 0 classes"):
            ask()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sinks": "runs/mine"}, "callables that take an Event, got 'runs/mine'"),
        ({"sinks": 5}, "callables that take an Event"),
        ({"alarms": [5]}, "callables that take an Event"),
        ({"alarms": "collapse"}, "callables that take an Event"),
    ],
)
def test_options_that_are_not_callable_raise_before_training(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(NclabError, match=words):
        nclab.Monitor(network(), **options)


@pytest.mark.parametrize("answer", ["text", True, ["text"]])
def test_an_alarm_rule_with_another_result_raises(answer: Any) -> None:
    model = network()
    with (
        pytest.raises(NclabError, match="to return an Alarm"),
        nclab.Monitor(model, alarms=lambda event: answer) as monitor,
    ):
        train(model, monitor, epochs=1)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_features_after_dropout_give_a_remark(share: float) -> None:
    torch.manual_seed(0)
    inputs, labels = torch.randn(60, 4), torch.arange(60) % 3
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(share), nn.Linear(8, 3))
    with nclab.Monitor(net) as monitor:
        for x, y in monitor.watch([(inputs, labels)]):
            nn.functional.cross_entropy(net(x), y).backward()
    assert monitor.last is not None
    remarks = [line for line in monitor.last.report.remarks if line.startswith("dropout is on (2)")]
    assert len(remarks) == (share > 0)
