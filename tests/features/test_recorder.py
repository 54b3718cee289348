"""Tests of what a recorder reads, when it reads, and that its hooks are removed."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from nclab.features.batches import Outputs, first_tensor
from nclab.features.pooling import NoRows
from nclab.features.recorder import Identity, Point, Recorder, is_weight_layer, storages

X = torch.arange(-6.0, 6.0).reshape(4, 3)


def copy(tensor: Tensor, module: nn.Module) -> Tensor:
    """Return a copy of a tensor; a reader that keeps all positions."""
    return tensor.clone()


def every(side: str, *names: str) -> list[Point]:
    """Return the points of all calls of the given modules, at one side."""
    return [Point(name, side, None) for name in names]


def count_hooks(model: nn.Module) -> int:
    """Return the number of hooks of any kind on all modules."""
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()
    )


class Twice(nn.Module):
    """A model that calls one layer twice, with an in-place ReLU between the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc(input=self.relu(self.fc(x)))
        return out


class Stumbling(nn.Module):
    """A model that continues after one of its modules has failed."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = nn.Sequential(nn.Linear(5, 5))
        self.fc = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        try:
            x = self.broken(x)
        except RuntimeError:
            x = x + 1
        out: Tensor = self.fc(x)
        return out


def test_reads_before_an_operation_in_place_changes_it() -> None:
    model = Twice()
    points = every("input", "fc") + every("output", "fc", "relu")
    with torch.no_grad(), Recorder(model, copy, points) as recorder:
        output = model(X)
    linear = functional.linear(X, model.fc.weight, model.fc.bias)
    assert (linear < 0).any(), "the ReLU must change something"
    rows = {point: value for point, value in recorder.rows.items() if isinstance(value, Tensor)}
    assert torch.equal(rows[Point("fc", "input", 0)], X)
    assert torch.equal(rows[Point("fc", "output", 0)], linear)
    assert torch.equal(rows[Point("relu", "output", 0)], linear.relu())
    assert torch.equal(rows[Point("fc", "input", 1)], linear.relu())
    assert torch.equal(rows[Point("fc", "output", 1)], output)
    assert len(recorder.rows) == 5
    assert recorder.calls == [], "calls are noted only while tracing"


def test_only_the_chosen_calls_are_read_and_only_while_active() -> None:
    model = Twice()
    points = [Point("fc", "input", 1), Point("fc", "output", 0), Point("relu", "input", 1)]
    recorder = Recorder(model, copy, points)
    recorder.install()
    model(X)
    assert set(recorder.rows) == set(points[:2]), "the ReLU is called once"
    recorder.restart()
    recorder.pause()
    model(X)
    assert recorder.rows == {}
    recorder.restart()
    model(X)
    assert set(recorder.rows) == set(points[:2]), "calls are counted from 0 again"
    recorder.remove()
    assert count_hooks(model) == 0


def test_tracing_records_every_call_in_order() -> None:
    model = Twice()
    with torch.no_grad(), Recorder(model, copy, [], trace=True) as recorder:
        model(X)
    assert [(call.name, call.index) for call in recorder.calls] == [
        ("", 0),
        ("fc", 0),
        ("relu", 0),
        ("fc", 1),
    ]
    model_call, first, relu, second = recorder.calls
    assert model_call.entered < first.entered < first.left < relu.entered < relu.left
    assert relu.left < second.entered < second.left < model_call.left
    assert first.source is X
    assert relu.target_identity == second.source_identity
    assert first.target is relu.target, "in place: the same tensor"
    assert first.target_identity != relu.target_identity, "but not the same values"


def test_hooks_are_removed_after_a_failed_forward_pass() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 2))
    with (  # noqa: PT012
        pytest.raises(RuntimeError, match="shapes"),
        Recorder(model, copy, every("input", "0") + every("output", "1"), trace=True) as recorder,
    ):
        assert count_hooks(model) > 0
        model(X)
    assert count_hooks(model) == 0
    assert [call.name for call in recorder.calls] == ["", "0", "1"]


def test_a_module_that_fails_inside_a_model_that_goes_on() -> None:
    model = Stumbling()
    points = every("output", "fc", "broken")
    with torch.no_grad(), Recorder(model, copy, points, trace=True) as recorder:
        output = model(X)
    rows = recorder.rows[Point("fc", "output", 0)]
    assert isinstance(rows, Tensor)
    assert torch.equal(rows, output)
    assert Point("broken", "output", 0) not in recorder.rows
    left = {call.name: call.left for call in recorder.calls}
    assert left["broken"] == left["broken.0"] == -1
    assert 0 < left["fc"] < left[""]


def test_a_tensor_without_rows_gives_a_reason() -> None:
    class Text(nn.Module):
        def forward(self, x: Tensor) -> str:
            return "no tensor"

    model = Text()
    with Recorder(model, copy, every("output", "")) as recorder:
        model(X)
    reason = recorder.rows[Point("", "output", 0)]
    assert isinstance(reason, NoRows)
    assert str(reason) == "it is not a tensor"


def test_the_last_module_with_the_shape_determines_the_channels() -> None:
    model = nn.Sequential(nn.Conv1d(2, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(30, 30), nn.ReLU())
    points = every("output", "1", "4")
    with torch.no_grad(), Recorder(model, copy, points, trace=True) as recorder:
        model(torch.ones(2, 2, 8))
    assert recorder.channel_modules[Point("1", "output", 0)] is model[0]
    assert recorder.channel_modules[Point("4", "output", 0)] is model[3]


def test_identity_distinguishes_values() -> None:
    tensor = torch.zeros(4, 6)
    before = Identity.of(tensor)
    assert Identity.of(tensor) == before
    assert Identity.of(tensor.detach()) == before, "an alias holds the same values"
    left, right = tensor.chunk(2, dim=1)
    assert Identity.of(left) != Identity.of(right), "two halves of one storage"
    square = torch.zeros(3, 3)
    assert Identity.of(square) != Identity.of(square.T)
    assert Identity.of(tensor.flatten()) != before
    assert Identity.of(torch.zeros(4, 6)) != before
    tensor.add_(1)
    assert Identity.of(tensor) != before, "changed in place"


def test_identity_of_unusual_tensors() -> None:
    with torch.inference_mode():
        made = torch.zeros(2)
    assert Identity.of(made) == Identity.of(made)
    sparse = [torch.eye(3).to_sparse() for _ in range(2)]
    assert Identity.of(sparse[0]) == Identity.of(sparse[0])
    assert Identity.of(sparse[0]) != Identity.of(sparse[1])
    parts = [torch.ones(2, 3), torch.ones(1, 3)]
    nested = [torch.nested.nested_tensor(parts, layout=torch.jagged) for _ in range(2)]
    assert Identity.of(nested[0]) == Identity.of(nested[0])
    assert Identity.of(nested[0]) != Identity.of(nested[1])


def test_views_share_a_storage() -> None:
    known = storages([X, torch.eye(2).to_sparse()])
    assert len(known) == 2
    assert Identity.of(X[1:].T).storage in known
    assert Identity.of(X + 1).storage not in known


def test_first_tensor_and_logits() -> None:
    other = X + 1
    assert first_tensor([None, "text", (None, {"a": {"b": X}}), other]) is X
    assert first_tensor({"a": 1, "b": "text"}) is None
    for output in (
        X,
        {"hidden": other, "logits": X},
        {"scores": X},
        SimpleNamespace(loss=other, logits=X),
        {"logits": None, "scores": X},
    ):
        (logits,) = Outputs.of(output).likely
        assert logits is X
    both = Outputs.of((other, [X])).likely
    assert both[0] is other
    assert both[1] is X
    assert Outputs.of(None).tensors == []


def test_weight_layers_hold_a_matrix_themselves() -> None:
    weights = [
        nn.Linear(2, 2),
        nn.Bilinear(2, 2, 2),
        nn.Conv1d(2, 2, 1),
        nn.ConvTranspose2d(2, 2, 1),
        nn.MultiheadAttention(2, 1),
        nn.LSTM(2, 2),
        nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
    ]
    others = [
        nn.ReLU(),
        nn.BatchNorm2d(2),
        nn.LayerNorm(2),
        nn.PReLU(),
        nn.Embedding(2, 2),
        nn.Sequential(nn.Linear(2, 2)),
    ]
    assert all(is_weight_layer(module) for module in weights)
    assert not any(is_weight_layer(module) for module in others)
