"""Tests of threads: one measures at a time, and never a model in training."""

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import nclab
from nclab.errors import ModelError

X = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(60) % 3
BATCHES = [(X[start : start + 10], Y[start : start + 10]) for start in range(0, 60, 10)]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def in_threads(*functions: Callable[[], Any]) -> list[Any]:
    """Run each function in a thread; return the results or the errors."""
    results: list[Any] = [None] * len(functions)

    def run(index: int) -> None:
        try:
            results[index] = functions[index]()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            results[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


def test_parallel_measurements_of_a_model_agree() -> None:
    model = network()
    alone = nclab.measure(model, BATCHES).last
    model.train()
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    hooks = [len(module._forward_hooks) for module in model.modules()]

    def many() -> list[float | None]:
        return [nclab.measure(model, BATCHES).last.nc1_trace_ratio for _ in range(6)]

    for values in in_threads(many, many, many):
        assert values == [alone.nc1_trace_ratio] * 6
    assert all(module.training for module in model.modules())
    assert [len(module._forward_hooks) for module in model.modules()] == hooks
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2])  # type: ignore[index]  # noqa: NPY002


def test_one_measurement_waits_for_another() -> None:
    """Count the measurements that read batches at the same time."""
    model, active, largest = network(), [0], [0]

    def watched() -> Iterator[tuple[Tensor, Tensor]]:
        active[0] += 1
        largest[0] = max(largest[0], active[0])
        for batch in BATCHES:
            threading.Event().wait(0.005)
            yield batch
        active[0] -= 1

    class Loader:
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            return watched()

    in_threads(*[lambda: nclab.measure(model, Loader())] * 3)
    assert largest == [1]


def trained(model: nn.Module, pause: Callable[[int], None]) -> tuple[list[float], list[bool]]:
    """Train for an epoch under a monitor; return random draws and the modes of the passes."""
    draws, modes = [], []
    with nclab.Monitor(model) as monitor:
        for number, (x, y) in enumerate(monitor.watch(BATCHES)):
            pause(number)
            modes.append(model.training)
            nn.functional.cross_entropy(model(x), y).backward()
            draws.append(float(torch.rand(())))
    return draws, modes


def test_a_model_in_training_is_not_measured_from_another_thread() -> None:
    model = network()
    before, after = threading.Event(), threading.Event()

    def pause(number: int) -> None:
        if number == 2:
            before.set()
            after.wait(30)

    def disturb() -> None:
        before.wait(30)
        try:
            nclab.measure(model, BATCHES)
        finally:
            after.set()

    (_, modes), refused = in_threads(lambda: trained(model, pause), disturb)
    assert isinstance(refused, ModelError)
    assert "no other thread trains" in str(refused)
    assert "\n" not in str(refused)
    assert modes == [True] * 6
    nclab.measure(model, BATCHES)  # the epoch is over


def test_a_training_keeps_its_random_numbers_while_another_model_is_measured() -> None:
    expected, _ = trained(network(), lambda number: None)
    other = network()
    torch.manual_seed(0)
    before, after, begun = threading.Event(), threading.Event(), threading.Event()

    class Loader:
        """A loader that keeps the measurement waiting during the training."""

        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            begun.set()
            after.wait(30)
            return iter(BATCHES)

    def pause(number: int) -> None:
        if number == 1:
            before.set()
            begun.wait(30)
        elif number == 4:
            after.set()
            measured.wait(30)

    measured = threading.Event()

    def measure() -> None:
        before.wait(30)
        nclab.measure(other, Loader())
        measured.set()

    (draws, _), _ = in_threads(lambda: trained(network(), pause), measure)
    assert draws == expected
    assert len(set(draws)) == len(draws)


def test_training_starts_after_the_measurement() -> None:
    model, order = network(), list[str]()
    measuring, go = threading.Event(), threading.Event()

    class Loader:
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            measuring.set()
            go.wait(0.3)
            yield from BATCHES
            order.append("measured")

    def train() -> None:
        measuring.wait(30)
        trained(model, lambda number: order.append(f"batch {number}"))

    assert [type(x) for x in in_threads(lambda: nclab.measure(model, Loader()), train)][1] is type(
        None
    )
    assert order[:2] == ["measured", "batch 0"]


@pytest.mark.parametrize("lost", [0, 2])
def test_an_epoch_left_early_does_not_stay_open(lost: int) -> None:
    model = network()
    with nclab.Monitor(model) as monitor:
        for number, (x, _) in enumerate(loader := monitor.watch(BATCHES)):
            model(x)
            if number == lost:
                break
        del loader
    (report,) = in_threads(lambda: nclab.measure(model, BATCHES))
    assert not isinstance(report, BaseException)
