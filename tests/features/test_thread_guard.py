"""Two threads and one model: measurements take turns, and none comes into a training."""

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


def together(*works: Callable[[], Any]) -> list[Any]:
    """What each returns, or raises, in a thread of its own."""
    results: list[Any] = [None] * len(works)

    def run(place: int) -> None:
        try:
            results[place] = works[place]()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            results[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


def test_two_measurements_of_one_model_are_those_of_one() -> None:
    model = network()
    alone = nclab.measure(model, BATCHES).last
    model.train()
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    hooks = [len(module._forward_hooks) for module in model.modules()]

    def many() -> list[float | None]:
        return [nclab.measure(model, BATCHES).last.nc1_trace_ratio for _ in range(6)]

    for found in together(many, many, many):
        assert found == [alone.nc1_trace_ratio] * 6
    assert all(module.training for module in model.modules())
    assert [len(module._forward_hooks) for module in model.modules()] == hooks
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2])  # type: ignore[index]  # noqa: NPY002


def test_one_measurement_waits_for_another() -> None:
    """While one reads its batches no other has begun."""
    model, inside, most = network(), [0], [0]

    def watched() -> Iterator[tuple[Tensor, Tensor]]:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        for batch in BATCHES:
            threading.Event().wait(0.005)
            yield batch
        inside[0] -= 1

    class Loader:
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            return watched()

    together(*[lambda: nclab.measure(model, Loader())] * 3)
    assert most == [1]


def trained(model: nn.Module, pause: Callable[[int], None]) -> tuple[list[float], list[bool]]:
    """Draws of an epoch under a monitor, and the modes that its passes were in."""
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

    (_, modes), refused = together(lambda: trained(model, pause), disturb)
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
        """Holds the measurement open while the training goes on."""

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

    (draws, _), _ = together(lambda: trained(network(), pause), measure)
    assert draws == expected
    assert len(set(draws)) == len(draws)


def test_a_training_begins_when_the_measurement_is_over() -> None:
    model, order = network(), list[str]()
    inside, go = threading.Event(), threading.Event()

    class Loader:
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            inside.set()
            go.wait(0.3)
            yield from BATCHES
            order.append("measured")

    def train() -> None:
        inside.wait(30)
        trained(model, lambda number: order.append(f"batch {number}"))

    assert [type(x) for x in together(lambda: nclab.measure(model, Loader()), train)][1] is type(
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
    (found,) = together(lambda: nclab.measure(model, BATCHES))
    assert not isinstance(found, BaseException)
