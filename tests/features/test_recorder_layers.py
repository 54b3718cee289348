"""Tests of which tensors are layers, of their names, and of the errors for other names."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nclab
from nclab.features.recorder import Point, named_points
from tests.contract import assert_same

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(48, 6, generator=GENERATOR, dtype=torch.float64)
Y = torch.arange(48) % 3
BATCHES = [(X[:20], Y[:20]), (X[20:], Y[20:])]


class Shared(nn.Module):
    """A model with one shared ReLU, one linear layer called three times, and functional steps."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(6, 8)
        self.again = nn.Linear(8, 8)
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(8, 3)
        self.unused = nn.Linear(8, 8)
        self.double()

    def steps(self, x: Tensor) -> dict[str, Tensor]:
        """Return the layers in order, by their expected names."""
        weight, bias = self.again.weight, self.again.bias
        places = {"again.input": functional.linear(x, self.first.weight, self.first.bias).relu()}
        hidden = functional.linear(places["again.input"], weight, bias)
        places["again.input#2"] = hidden.relu()
        places["again.input#3"] = functional.linear(hidden.relu(), weight, bias).tanh()
        places["again#3"] = functional.linear(places["again.input#3"], weight, bias)
        return places

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.first(x))
        x = self.relu(self.again(x))
        x = self.again(self.again(x).tanh())
        out: Tensor = self.head(x)
        return out


class Halves(nn.Module):
    """A model in which two layers read the halves of a tensor and two more read all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.split = nn.Linear(6, 16)
        self.left = nn.Linear(8, 8)
        self.right = nn.Linear(8, 8)
        self.whole = nn.Linear(16, 8)
        self.gate = nn.Linear(16, 8)
        self.head = nn.Linear(8, 3)
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        both = self.split(x)
        left, right = both.chunk(2, dim=1)
        mixed = self.left(left) * self.right(right) + self.whole(both) * self.gate(both)
        out: Tensor = self.head(mixed)
        return out


def names(report: nclab.Report) -> list[str | None]:
    """Return the names of the measured layers in order."""
    return [layer.layer for layer in report.layers]


def chain() -> nn.Sequential:
    """Return a network of two blocks and a head."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Sequential(nn.Linear(6, 8), nn.ReLU()),
        nn.Sequential(nn.Linear(8, 7), nn.BatchNorm1d(7), nn.ReLU(inplace=True), nn.Dropout()),
        nn.Linear(7, 3),
    ).double()


def reference(rows: Tensor) -> nclab.Collapse:
    """Measure a layer that no classifier reads as an array."""
    return nclab.measure_features(rows.detach(), Y, num_classes=3)


def test_a_layer_is_named_after_the_outermost_module_that_returns_it() -> None:
    assert names(nclab.measure(chain(), BATCHES, layers="all")) == ["0", "1"]
    assert names(nclab.measure(chain(), BATCHES)) == ["1"]


def test_outputs_and_inputs_by_name() -> None:
    model: Any = chain()
    wanted = ["0.0", "0", "1.1.input", "1.1", "1.2", "1", "2.input", "2"]
    report = nclab.measure(model, BATCHES, layers=wanted)
    model.eval()
    linear = model[0][0](X)
    hidden = linear.relu()
    before = model[1][0](hidden)
    normed = model[1][1](before)
    rows = [linear, hidden, before, normed, normed.relu(), normed.relu(), normed.relu()]
    last = nclab.measure_features(normed.relu(), Y, model[2].weight, model[2].bias)
    for name, expected in zip(wanted, [*rows, model[2](normed.relu())], strict=True):
        expected_layer = last if name in ("1.2", "1", "2.input") else reference(expected)
        assert_same(report[name].scalars(), expected_layer.scalars(), relative=1e-10)
    assert report["0"].loss is None
    assert report["0"].notes["loss"] == "the classifier does not read this layer"


def test_named_layers_come_in_the_order_of_the_network() -> None:
    report = nclab.measure(chain(), BATCHES, layers=["2.input", "1.0", "0", "1.0"])
    assert names(report) == ["0", "1.0", "2.input"]
    single = nclab.measure(chain(), BATCHES, layers="1.0")
    assert names(single) == ["1.0"]
    assert_same(single["1.0"].scalars(), report["1.0"].scalars(), relative=0, absolute=0)


def test_shared_modules_have_a_layer_for_every_call() -> None:
    model = Shared()
    report = nclab.measure(model, BATCHES, layers="all")
    expected = model.steps(X)
    last = expected.popitem()[1]
    assert names(report) == [*expected, "head.input"]
    for name, rows in expected.items():
        assert_same(report[name].scalars(), reference(rows).scalars(), relative=1e-10)
    weighed = nclab.measure_features(last.detach(), Y, model.head.weight, model.head.bias)
    assert_same(report.last.scalars(), weighed.scalars(), relative=1e-10)


def test_a_call_of_a_shared_module_by_name() -> None:
    model = Shared()
    expected = model.steps(X)
    wanted = {"relu": "again.input", "relu#2": "again.input#2", "again.input#3": "again.input#3"}
    report = nclab.measure(model, BATCHES, layers=[*wanted, "again#3"])
    for name, layer in wanted.items():
        assert_same(report[name].scalars(), reference(expected[layer]).scalars(), relative=1e-10)
    assert report["again#3"].loss is not None, "the classifier reads it"


@pytest.mark.parametrize("model", [chain(), Shared(), Halves()])
def test_every_name_in_a_report_can_be_passed(model: nn.Module) -> None:
    everything = nclab.measure(model, BATCHES, layers="all")
    by_name = nclab.measure(model, BATCHES, layers=[str(name) for name in names(everything)])
    assert set(names(by_name)) == set(names(everything))
    assert len(by_name.layers) == len(everything.layers)
    for layer in everything.layers:
        again = by_name[str(layer.layer)]
        assert_same(again.scalars(), layer.scalars(), relative=0, absolute=0)


def test_a_tensor_is_one_layer_and_its_halves_are_two() -> None:
    model = Halves()
    report = nclab.measure(model, BATCHES, layers="all")
    assert names(report) == ["left.input", "right.input", "split", "head.input"]
    both = model.split(X)
    for name, rows in (("left.input", both[:, :8]), ("right.input", both[:, 8:]), ("split", both)):
        assert_same(report[name].scalars(), reference(rows).scalars(), relative=1e-10)


def test_a_layer_is_not_named_after_a_later_module() -> None:
    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(6, 8)
            self.second = nn.Linear(8, 8)
            self.drop = nn.Dropout()
            self.head = nn.Linear(8, 3)
            self.double()

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            out: Tensor = self.head(self.second(x) * self.drop(x))
            return out

    assert names(nclab.measure(Late(), BATCHES, layers="all")) == ["first", "head.input"]


def test_the_networks_own_input_is_no_layer() -> None:
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(6, 8)
            self.b = nn.Linear(3, 8)
            self.head = nn.Linear(8, 3)
            self.double()

        def forward(self, inputs: list[Tensor], scale: dict[str, Tensor]) -> Tensor:
            x = inputs[0]
            hidden = self.a(x) + self.b(x[:, ::2]) * scale["by"]
            out: Tensor = self.head(hidden.relu())
            return out

    batch = ([X, -X], {"by": torch.ones(())}, Y)
    assert names(nclab.measure(Views(), [batch], layers="all")) == ["head.input"]


def test_tensors_that_are_no_layers_are_skipped_with_a_reason() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.grey = nn.Conv2d(1, 4, 3)
            self.pairs = nn.Linear(4, 4)
            self.head = nn.Linear(4, 3)
            self.double()

        def forward(self, x: Tensor) -> Tensor:
            maps = self.grey(x * 2 - 1).flatten(2).mT  # (B, 16, 4)
            pairs = self.pairs(maps.reshape(-1, 4))
            out: Tensor = self.head(pairs.reshape(len(x), -1, 4).mean(1))
            return out

    x = torch.randn(48, 1, 6, 6, dtype=torch.float64)
    report = nclab.measure(Odd(), [(x, Y)], layers="all")
    assert names(report) == ["head.input"]
    assert list(report.skipped) == ["grey.input", "pairs.input"]
    assert "dimension 2 or more for 3 classes, got 1" in report.skipped["grey.input"]
    assert "(768, 4) does not fit labels of shape (48,)" in report.skipped["pairs.input"]
    printed = " ".join(str(report).split())
    for name, why in report.skipped.items():
        assert f"{name} not measured: {why}" in printed


def test_a_sequence_as_long_as_the_batch_is_skipped_if_ambiguous() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(9, 6)
            self.rnn = nn.GRU(6, 6)
            self.head = nn.Linear(6, 3)

        def forward(self, ids: Tensor) -> Tensor:
            out: Tensor = self.head(self.rnn(self.embed(ids))[0][-1])
            return out

    ids = torch.randint(0, 9, (7, 12))  # (T, B)
    report = nclab.measure(Recurrent(), [(ids, Y[:12])], layers="all")
    assert names(report) == ["embed", "head.input"]
    square = torch.randint(0, 9, (12, 12))
    report = nclab.measure(Recurrent(), [(square, Y[:12])], layers="all")
    assert names(report) == ["head.input"]
    assert "could be batch first or sequence first" in report.skipped["embed"]
    # After a batch with a clear order, a square batch is read in the same order.
    report = nclab.measure(Recurrent(), [(ids, Y[:12]), (square, Y[:12])], layers="all")
    assert names(report) == ["embed", "head.input"]
    assert report["embed"].samples == 24


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (["frist"], "got 'frist'; did you mean first"),
        ("hed", "got 'hed'; did you mean head"),
        (["first", "agian.input"], "got 'agian.input'; did you mean again"),
        (["zzzzzzzz"], "got 'zzzzzzzz'; see model.named_modules()"),
        (["relu#0"], "got 'relu#0'; did you mean relu"),
        (["relu#1"], "got 'relu#1'; did you mean relu"),
        ([""], "got ''"),
        ([], "at least one layer name, got none"),
        (["unused"], "Cannot measure unused: it was not called"),
        (["relu#3"], "Cannot measure relu#3: it was not called"),
    ],
)
def test_wrong_names_raise_in_one_line(layers: Any, message: str) -> None:
    with pytest.raises(nclab.ModelError) as caught:
        nclab.measure(Shared(), BATCHES, layers=layers)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_names_become_points() -> None:
    model = Shared()
    model.input = nn.Identity()
    points = named_points(model, ["head", "head.input", "relu#2", "again.input#3", "input"])
    assert points == [
        ("head", Point("head", "output", 0)),
        ("head.input", Point("head", "input", 0)),
        ("relu#2", Point("relu", "output", 1)),
        ("again.input#3", Point("again", "input", 2)),
        ("input", Point("input", "output", 0)),
    ]
