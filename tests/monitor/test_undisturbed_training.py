"""Tests that training gives the same weights, bit for bit, with and without the monitor."""

import io
from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import nclab
from nclab.monitor.event import Event
from tests.contract import assert_same as assert_scalars
from tests.monitor.loops import CLASSES, assert_same, batches, network, train


def both_ways(model: nn.Module, **options: object) -> list[Event]:
    """Train a copy without and the model with the monitor; return the events."""
    plain = train(deepcopy(model), None, **options)  # type: ignore[arg-type]
    events: list[Event] = []
    with nclab.Monitor(model, preset="full", sinks=events.append) as monitor:
        ours = train(model, monitor, **options)  # type: ignore[arg-type]
    assert_same(ours, plain)
    assert [event.report.samples for event in events] == [60, 60]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    return events


def test_plain() -> None:
    both_ways(network())


def test_dropout() -> None:
    both_ways(network(dropout=0.4))


def test_bfloat16() -> None:
    events = both_ways(network(), bfloat16=True)
    assert events[-1].report.last.loss is not None


def test_gradient_accumulation() -> None:
    both_ways(network(), accumulate=3)


def test_data_parallel_on_one_device() -> None:
    both_ways(nn.DataParallel(network()))


def test_reading_does_not_advance_spectral_norm() -> None:
    model = network(norm=False)
    parametrizations.spectral_norm(model[-1])
    parametrizations.spectral_norm(model[0])
    both_ways(model)


class Checkpointed(nn.Module):
    """A model that runs its hidden layers again during the backward pass."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.hidden = network(norm=False, dropout=0.3)[:-1]
        self.fc = nn.Linear(8, CLASSES)
        self.reentrant = reentrant
        self.runs = 0
        self.hidden.register_forward_pre_hook(self.count)

    def count(self, *_: object) -> None:
        self.runs += 1

    def forward(self, inputs: Tensor) -> Tensor:
        inputs.requires_grad_()  # required by re-entrant checkpointing
        again = checkpoint(self.hidden, inputs, use_reentrant=self.reentrant)
        logits: Tensor = self.fc(again)
        return logits


@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_counts_each_sample_once(reentrant: bool) -> None:
    model = Checkpointed(reentrant=reentrant)
    plain = train(deepcopy(model), None)
    with nclab.Monitor(model, preset="full") as monitor:
        ours = train(model, monitor)
    assert_same(ours, plain)
    assert model.runs == 2 * 2 * len(batches())  # the second run of each is the recomputation
    assert monitor.last is not None
    assert [collapse.samples for collapse in monitor.last.layers] == [60, 60]


def failing_once(monitor: nclab.Monitor, then: Callable[[Tensor], object]) -> int:
    """Return the number of samples read if the third pass fails and another call follows."""
    for number, (inputs, _) in enumerate(monitor.watch(batches())):
        if number == 2:
            with pytest.raises(RuntimeError):
                monitor.model(inputs[:, :3])
            then(inputs)
        else:
            monitor.model(inputs)
    assert monitor.last is not None
    return monitor.last.report.samples


def test_a_failed_pass_may_be_repeated() -> None:
    with nclab.Monitor(network()) as monitor:
        assert failing_once(monitor, monitor.model) == 60


def test_an_evaluation_after_a_failed_pass_is_not_read() -> None:
    model = network()

    def evaluate(inputs: Tensor) -> None:
        model.eval()(inputs)
        model.train()

    with (
        nclab.Monitor(model) as monitor,
        pytest.warns(nclab.NclabWarning, match="The monitor skipped a batch"),
    ):
        assert failing_once(monitor, evaluate) == 50


def step_as_forward(model: nn.Module, inputs: Tensor) -> Tensor:
    """Call the model inside its own call, as Lightning does for DistributedDataParallel."""
    forward, outputs = model.forward, []

    def step(inputs: Tensor) -> Tensor:
        model.forward = forward
        outputs.append(model(inputs))
        return outputs[0].sum()

    model.forward = step
    model(inputs)
    return outputs[0]


def test_a_training_step_as_the_forward_pass() -> None:
    inside = both_ways(network(dropout=0.2), forward=step_as_forward)
    plain = both_ways(network(dropout=0.2))
    for ours, theirs in zip(inside, plain, strict=True):
        assert ours.scalars() == theirs.scalars()


def test_exact_measurements_between_epochs_change_nothing() -> None:
    model = network(dropout=0.2)
    plain = train(deepcopy(model), None)
    torch.manual_seed(1)
    with nclab.Monitor(model) as monitor:
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(2):
            for number, (inputs, labels) in enumerate(monitor.watch(batches())):
                if number == 2:  # between the labels and their forward pass
                    monitor.measure(batches(seed=3))
                nn.functional.cross_entropy(model(inputs), labels).backward()
                optimiser.step()
                optimiser.zero_grad()
            monitor.measure(batches(seed=3))
    torch.rand(1)
    assert_same({**model.state_dict(), "random": torch.get_rng_state()}, plain)
    assert [row["samples"] for row in monitor.history.rows] == [60] * 6


def test_copies_and_files_of_a_watched_model_have_no_hooks() -> None:
    model = network()
    with nclab.Monitor(model, preset="full") as monitor:
        for inputs, labels in monitor.watch(batches()):
            deepcopy(model)(inputs)
            torch.save(model, io.BytesIO())  # a model with other hooks could not be saved
            nn.functional.cross_entropy(model(inputs), labels).backward()
    assert monitor.last is not None
    assert monitor.last.report.samples == 60


def by_compile(model: nn.Module) -> nn.Module:
    compiled: nn.Module = torch.compile(model, backend="eager")  # type: ignore[assignment]
    return compiled


def by_compile_in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


def by_compiling_a_part(model: nn.Module) -> nn.Module:
    return nn.Sequential(by_compile(model))


@pytest.mark.parametrize("compiled", [by_compile, by_compile_in_place, by_compiling_a_part])
def test_compiled_models_are_measured_but_not_watched(
    compiled: Callable[[nn.Module], nn.Module],
) -> None:
    model = compiled(network())
    with nclab.Monitor(model) as monitor:
        with pytest.raises(nclab.ModelError, match=r"torch.compile.*monitor.measure"):
            train(model, monitor)
        exact = nclab.measure(network(), batches()).last
        assert monitor.measure(batches()).last.min_intra == exact.min_intra


class BodyAndHead(nn.Module):
    """A network whose body, not its classifier, may be compiled."""

    def __init__(self) -> None:
        super().__init__()
        *hidden, head = network(norm=False)
        self.body, self.head = nn.Sequential(*hidden), head

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(inputs))
        return logits


@pytest.mark.parametrize("in_place", [True, False])
def test_the_layers_before_the_classifier_may_be_compiled(in_place: bool) -> None:
    """Follow the advice of the error: weights and measurements are unchanged."""
    expected = nclab.Monitor(BodyAndHead())
    plain = train(expected.model, expected)
    models = [BodyAndHead(), BodyAndHead()]
    for model in models:
        if in_place:
            model.body.compile(backend="eager")
        else:
            model.body = by_compile(model.body)  # type: ignore[assignment]
    monitor = nclab.Monitor(models[0])
    watched, unwatched = train(models[0], monitor), train(models[1], None)
    for name, value in unwatched.items():
        assert torch.equal(watched[name], value), name
        assert torch.equal(plain[name.replace("_orig_mod.", "")], value), name
    assert monitor.last is not None
    assert expected.last is not None
    theirs = expected.last.report.last.scalars()
    assert_scalars(monitor.last.report.last.scalars(), theirs, relative=1e-9)
    exact = nclab.measure(expected.model, batches()).last
    assert monitor.measure(batches()).last.cdnv == pytest.approx(exact.cdnv, rel=1e-9)


def test_a_compiled_training_step_raises() -> None:
    model = network()
    step = torch.compile(lambda module, inputs: module(inputs), backend="eager")
    with (
        pytest.raises(nclab.ModelError, match="no complete forward pass in training mode"),
        nclab.Monitor(model) as monitor,
    ):
        train(model, monitor, forward=step)
