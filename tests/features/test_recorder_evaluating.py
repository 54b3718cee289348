"""Tests that a measurement changes neither the model, nor the loader, nor random states."""

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

import nclab
from nclab.features.recorder import evaluating, unwrap

X = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(60) % 3
DATA = TensorDataset(X, Y)
BATCHES = [(X[start : start + 10], Y[start : start + 10]) for start in range(0, 60, 10)]


class Noisy(nn.Module):
    """A model with batch norm, dropout, gradients and frozen parts that draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.5)
        )
        self.head = nn.Linear(8, 3)
        self.batches = 0
        self.fail_at = -1

    def forward(self, x: Tensor) -> Tensor:
        self.batches += 1
        noise = torch.rand(()) + random.random() + np.random.rand()  # noqa: NPY002
        features = self.body(x + 1e-3 * noise)
        if self.batches == self.fail_at:
            raise RuntimeError("out of luck")
        out: Tensor = self.head(features)
        return out


def prepared(*, fail_at: int = -1) -> Noisy:
    """Return a model in the middle of training: with gradients, frozen parts and mixed modes."""
    torch.manual_seed(1)
    model = Noisy()
    model(X).square().mean().backward()
    model.batches, model.fail_at = 0, fail_at
    model.body[0].requires_grad_(False)
    model.body[1].eval()
    model.head.eval()
    model.body[0].register_forward_hook(lambda module, args, output: None)
    model.head.register_forward_pre_hook(lambda module, args: None)
    return model


def snapshot(model: nn.Module) -> dict[str, Any]:
    """Return the state of a model and all global states, which must not change."""
    state: dict[str, Any] = {}
    for name, module in model.named_modules():
        state[f"{name} training"] = module.training
        state[f"{name} hooks"] = list(module._forward_hooks.items())
        state[f"{name} pre-hooks"] = list(module._forward_pre_hooks.items())
        state[f"{name} keyword hooks"] = [
            *module._forward_hooks_with_kwargs,
            *module._forward_pre_hooks_with_kwargs,
        ]
    for name, parameter in model.named_parameters():
        state[name] = parameter.detach().clone()
        state[f"{name} is"] = id(parameter)
        state[f"{name} version"] = parameter._version
        state[f"{name} requires_grad"] = parameter.requires_grad
        state[f"{name} grad"] = None if parameter.grad is None else parameter.grad.clone()
        state[f"{name} grad is"] = id(parameter.grad)
    for name, buffer in model.named_buffers():
        state[name] = buffer.clone()
    kind, keys, *others = np.random.get_state()  # noqa: NPY002
    state["numpy"] = (kind, torch.from_numpy(np.asarray(keys).astype(np.int64)).tolist(), others)
    state["python"] = random.getstate()
    state["torch"] = torch.get_rng_state()
    state["fused attention"] = torch.backends.mha.get_fastpath_enabled()
    state["gradients"] = (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    return state


def assert_unchanged(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Assert that two snapshots are equal bit for bit."""
    assert before.keys() == after.keys()
    for name, value in before.items():
        if isinstance(value, Tensor):
            assert torch.equal(value, after[name]), name
        else:
            assert value == after[name], name


def shuffling(**options: Any) -> DataLoader[tuple[Tensor, ...]]:
    """Return a loader that draws a new order in each epoch."""
    return DataLoader(DATA, batch_size=16, shuffle=True, **options)


@pytest.mark.parametrize("cache_bytes", [2**20, 0])
@pytest.mark.parametrize("layers", ["last", "all"])
def test_a_measurement_changes_nothing(layers: str, cache_bytes: int) -> None:
    model = prepared()
    before = snapshot(model)
    nclab.measure(model, shuffling(), layers=layers, cache_bytes=cache_bytes)
    assert model.batches == (4 if cache_bytes else 8)
    assert_unchanged(before, snapshot(model))


def test_the_snapshot_detects_a_careless_measurement() -> None:
    model = prepared()
    before = snapshot(model)
    next(iter(shuffling()))
    with pytest.raises(AssertionError, match="torch"):
        assert_unchanged(before, snapshot(model))
    before = snapshot(model)
    with torch.no_grad():
        model.train()(X)
    with pytest.raises(AssertionError, match="training"):
        assert_unchanged(before, snapshot(model))


@pytest.mark.parametrize("fail_at", [1, 2, 5])
def test_a_failing_forward_pass_changes_nothing(fail_at: int) -> None:
    model = prepared(fail_at=fail_at)
    before = snapshot(model)
    with pytest.raises(RuntimeError, match="out of luck"):
        nclab.measure(model, shuffling(), layers="all", cache_bytes=0)
    assert model.batches == fail_at
    assert_unchanged(before, snapshot(model))


def test_a_failing_loader_changes_nothing() -> None:
    def loader() -> Iterator[tuple[Tensor, Tensor]]:
        yield X, Y
        random.random()
        torch.rand(1)
        raise OSError("disk gone")

    model = prepared()
    before = snapshot(model)
    with pytest.raises(OSError, match="disk gone"):
        nclab.measure(model, loader(), layers="all")
    with pytest.raises(nclab.DataError, match="labels in"):
        nclab.measure(model, [(X, Y), (X, Y + 3)], layers="all")
    with pytest.raises(nclab.ModelError):
        nclab.measure(model, [(X, Y)], classifier="body.2")
    assert_unchanged(before, snapshot(model))


def test_the_loaders_own_generators_are_restored() -> None:
    model = prepared()
    generator = torch.Generator().manual_seed(5)
    sampler = RandomSampler(DATA, generator=generator)
    for loader in (
        shuffling(generator=generator),
        DataLoader(DATA, batch_size=16, sampler=sampler),
    ):
        before = generator.get_state()
        nclab.measure(model, loader, cache_bytes=0)
        assert torch.equal(generator.get_state(), before)


def test_training_continues_as_without_a_measurement() -> None:
    def train(*, measured: bool) -> Tensor:
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)  # noqa: NPY002
        model = Noisy()
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            for x, y in shuffling():
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimiser.step()
            if measured:
                nclab.measure(model, shuffling(), layers="all")
        return torch.cat([value.flatten().double() for value in model.state_dict().values()])

    assert torch.equal(train(measured=True), train(measured=False))


def test_modes_are_set_during_evaluation_and_restored_afterwards() -> None:
    model = prepared()
    before = snapshot(model)
    with evaluating(model):
        assert not any(module.training for module in model.modules())
        assert not torch.is_grad_enabled()
        assert not torch.backends.mha.get_fastpath_enabled()
        torch.rand(1)
    assert_unchanged(before, snapshot(model))


def test_a_disabled_fused_path_stays_disabled() -> None:
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        nclab.measure(prepared(), [(X, Y)])
        assert not torch.backends.mha.get_fastpath_enabled()
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_measures_inside_inference_mode() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))
    expected = nclab.measure(model, [(X, Y)], layers="all")
    with torch.inference_mode():
        report = nclab.measure(model, [(X * 1, Y)], layers="all")
        assert torch.is_inference_mode_enabled()
    assert [layer.scalars() for layer in report.layers] == [
        layer.scalars() for layer in expected.layers
    ]


def test_unwrap() -> None:
    inner = nn.Linear(2, 2)
    assert unwrap(inner) is inner
    assert unwrap(nn.DataParallel(inner)) is inner
    compiled = torch.compile(inner, backend="eager")
    assert isinstance(compiled, nn.Module)
    assert compiled is not inner
    assert unwrap(compiled) is inner
    assert unwrap(nn.DataParallel(nn.DataParallel(compiled))) is inner


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
