"""Tests of finding the classifier, and of the errors for models without one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nclab
from tests.contract import assert_same

X = torch.randn(60, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.arange(60) % 4
BATCHES = [(X[:25], Y[:25]), (X[25:], Y[25:])]


@dataclass
class Output:
    """An output object as libraries return it instead of a tensor."""

    loss: Tensor | None
    logits: Tensor


class Net(nn.Module):
    """A body, a head, and a chosen function of the logits."""

    def __init__(self, ending: str = "plain", head: nn.Module | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh())
        self.head = nn.Linear(8, 4) if head is None else head
        self.ending = ending
        self.double()

    def forward(self, x: Tensor) -> Any:
        features = self.body(x)
        z = self.head(features)
        endings: dict[str, Any] = {
            "plain": lambda: z,
            "dict": lambda: {"features": features, "logits": z},
            "nameless dict": lambda: {"scores": z, "features": features},
            "object": lambda: Output(None, z),
            "tuple": lambda: (z, features),
            "nested": lambda: [(None, {"out": z})],
            "upcast": lambda: z.double(),
            "reshaped": lambda: z.reshape(len(x), 2, 2),
            "log_softmax": lambda: functional.log_softmax(z, -1),
            "softmax": lambda: z.softmax(-1),
            "temperature": lambda: z / 7,
            "temperature in place": lambda: z.div_(7),
            "nothing": lambda: None,
            "text": lambda: {"answer": "4"},
        }
        return endings[self.ending]()


class OwnLinear(nn.Module):
    """A linear map that is not an nn.Linear."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / 2)
        self.bias = nn.Parameter(torch.randn(outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)


class Cosine(nn.Module):
    """A cosine classifier: its weight has the right shape, but it is not linear."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)

    def forward(self, x: Tensor) -> Tensor:
        return functional.normalize(x) @ functional.normalize(self.weight).T


def expected(model: Net) -> nclab.Collapse:
    """Measure the features of the body and the parameters of the head as arrays."""
    with torch.no_grad():
        features = model.body(X)
    weight, bias = model.head.weight, getattr(model.head, "bias", None)
    return nclab.measure_features(features, Y, weight, bias)


def error(model: nn.Module, batches: Any = BATCHES, **options: Any) -> str:
    """Return the one-line error that a model raises."""
    with pytest.raises(nclab.ModelError) as caught:
        nclab.measure(model, batches, **options)
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    "ending",
    ["plain", "dict", "nameless dict", "object", "tuple", "nested", "upcast", "reshaped"],
)
def test_the_classifier_is_found_in_any_output_type(ending: str) -> None:
    model = Net(ending)
    report = nclab.measure(model, BATCHES)
    assert report.classifier == "head"
    assert report.remarks == ()
    assert report.last.layer == "body"
    assert_same(report.last.scalars(), expected(model).scalars(), relative=1e-10)


@pytest.mark.parametrize("ending", ["log_softmax", "softmax"])
def test_a_function_of_the_logits_gives_a_remark(ending: str) -> None:
    model = Net(ending)
    report = nclab.measure(model, BATCHES)
    assert report.classifier == "head"
    assert len(report.remarks) == 1
    assert "is not the result of head but a function of it" in report.remarks[0]
    assert report.remarks[0] in " ".join(str(report).split())
    assert_same(report.last.scalars(), expected(model).scalars(), relative=1e-10)


@pytest.mark.parametrize("ending", ["temperature", "temperature in place"])
def test_a_temperature_is_measured(ending: str) -> None:
    model = Net(ending)
    report = nclab.measure(model, BATCHES)
    assert report.classifier == "head"
    assert report.remarks == (
        "the model's output is 0.1429 × the result of head: weight and bias are measured with this "
        "factor",
    )
    with torch.no_grad():
        features, head = model.body(X), model.head
        assert isinstance(head, nn.Linear)
        hand = nclab.measure_features(features, Y, head.weight / 7, head.bias / 7)
        loss = functional.cross_entropy(model(X), Y)
    assert_same(report.last.scalars(), hand.scalars(), relative=1e-10)
    assert report.last.loss == pytest.approx(float(loss), rel=1e-10)


@pytest.mark.parametrize(
    "head",
    [
        nn.Linear(8, 4, bias=False),
        OwnLinear(8, 4),
        OwnLinear(8, 4, bias=False),
        nn.utils.parametrizations.weight_norm(nn.Linear(8, 4)),
    ],
)
def test_heads_without_bias_and_heads_of_other_kinds(head: nn.Module) -> None:
    model = Net(head=head)
    report = nclab.measure(model, BATCHES)
    assert report.classifier == "head"
    assert report.remarks == ()
    assert_same(report.last.scalars(), expected(model).scalars(), relative=1e-10)


def test_the_bias_is_measured() -> None:
    with_bias = Net()
    without = Net(head=nn.Linear(8, 4, bias=False))
    assert isinstance(without.head, nn.Linear)
    assert isinstance(with_bias.head, nn.Linear)
    without.head.weight = with_bias.head.weight
    losses = [nclab.measure(model, BATCHES).last.loss for model in (with_bias, without)]
    assert losses[0] != pytest.approx(losses[1], rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("inputs", [8, 700])
def test_linear_and_cosine_heads_are_distinguished_in_any_precision(
    inputs: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    batches = [(x.to(dtype), y) for x, y in BATCHES]
    first = nn.Linear(6, inputs)
    first.weight.data.mul_(0.3)  # so that products and cosines are of one size
    body = nn.Sequential(first, nn.ReLU())
    linear = nn.Sequential(body, OwnLinear(inputs, 4)).to(dtype)
    report = nclab.measure(linear, batches)
    assert (report.classifier, report.remarks) == ("1", ())
    cosine = nn.Sequential(body, Cosine(inputs, 4)).to(dtype)
    report = nclab.measure(cosine, batches)
    assert report.classifier == "1"
    assert report.remarks == (
        "1 compares directions: the features are measured as unit vectors, the classifier is the "
        "unit rows of its weight times 1",
    )
    assert report.last.alpha == pytest.approx(1, rel=1e-12)


def test_a_model_without_a_linear_map() -> None:
    model = nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.Flatten()).double()
    line = error(model)
    assert "found none among its modules (Conv1d, Flatten, Sequential, Unflatten)" in line
    assert "the last one called is '2'; its output of shape (25, 16)" in line
    assert "Pass classifier= the name of a module, a function model -> (W, b)" in line


def test_a_model_without_logits() -> None:
    assert "returns a tensor of logits, got an output without" in error(Net("nothing"))
    assert "got an output without tensors" in error(Net("text"))
    assert "Expected a torch.nn.Module, got a function" in error(lambda x: x)  # type: ignore[arg-type]


def test_a_chosen_classifier() -> None:
    model = Net()
    report = nclab.measure(model, [(X, torch.arange(60) % 8)], classifier="body.0", layers="all")
    first = model.body[0]
    reference = nclab.measure_features(X, torch.arange(60) % 8, first.weight, first.bias)
    assert report.classifier == "body.0"
    assert report.last.layer == "body.0.input"
    assert_same(report.last.scalars(), reference.scalars(), relative=1e-10)


@pytest.mark.parametrize("name", ["body", "body.1", "tail", ""])
def test_an_unsuitable_classifier_name_raises(name: str) -> None:
    line = error(Net(), classifier=name)
    assert f"Expected classifier={name!r} to name a linear map called in the forward pass" in line


def test_a_chosen_classifier_of_a_model_that_returns_no_logits() -> None:
    model = Net("nothing")
    report = nclab.measure(model, BATCHES, classifier="head")
    assert_same(report.last.scalars(), expected(model).scalars(), relative=1e-10)


def test_the_last_call_of_the_last_linear_map_is_measured() -> None:
    class Repeated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.fc(self.fc(x).tanh())
            return out

    model = Repeated().double()
    labels = torch.arange(60) % 6
    report = nclab.measure(model, [(X, labels)])
    features = model.fc(X).tanh()
    reference = nclab.measure_features(features, labels, model.fc.weight, model.fc.bias)
    assert report.last.layer == "fc.input#2"
    assert_same(report.last.scalars(), reference.scalars(), relative=1e-10)


def test_a_model_that_is_its_own_classifier() -> None:
    model = nn.Linear(6, 4).double()
    for layers in ("last", "all"):
        report = nclab.measure(model, BATCHES, layers=layers)
        reference = nclab.measure_features(X, Y, model.weight, model.bias)
        assert report.classifier == "Linear"
        assert len(report.layers) == 1
        assert_same(report.last.scalars(), reference.scalars(), relative=1e-10)


def test_a_single_output_is_a_classifier_of_two_classes() -> None:
    with pytest.raises(nclab.DataError, match=r"labels in \[0, 2\) for the 2 outputs") as caught:
        nclab.measure(Net(head=nn.Linear(8, 1)), BATCHES)
    assert "\n" not in str(caught.value)


class Heads(nn.Module):
    """A body and two heads, combined by a function of the test."""

    def __init__(self, finish: Callable[["Heads", Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.main, self.aux = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 4)
        self.finish = finish

    def forward(self, x: Tensor) -> Any:
        return self.finish(self, self.body(x).relu())


HEAD_X, HEAD_Y = (
    torch.randn(40, 6, generator=torch.Generator().manual_seed(0)),
    torch.arange(40) % 4,
)


@pytest.mark.parametrize("kind", ["tuple", "dict"])
def test_the_first_of_several_heads_is_measured_and_the_others_are_named(kind: str) -> None:
    if kind == "tuple":
        model = Heads(lambda net, h: (net.main(h), net.aux(h)))
    else:
        model = Heads(lambda net, h: {"out": net.main(h), "aux": net.aux(h)})
    report = nclab.measure(model, [(HEAD_X, HEAD_Y)])
    assert report.classifier == "main"
    assert "not that of aux" in report.remarks[0]
    expected = nn.functional.cross_entropy(model.main(model.body(HEAD_X).relu()), HEAD_Y)
    assert report.last.loss == pytest.approx(float(expected.detach()), rel=1e-5)


def test_heads_other_than_the_logits_are_named() -> None:
    model = Heads(lambda net, h: {"aux": net.aux(h), "logits": net.main(h)})
    report = nclab.measure(model, [(HEAD_X, HEAD_Y)])
    assert report.classifier == "main"
    assert report.remarks == ("of several outputs, measured that of main, not that of aux",)
    chosen = nclab.measure(model, [(HEAD_X, HEAD_Y)], classifier="aux")
    assert (chosen.classifier, chosen.remarks) == ("aux", ())


def test_a_hook_that_changes_the_logits_is_noticed() -> None:
    model = Heads(lambda net, h: net.main(h))
    model.main.register_forward_hook(lambda module, inputs, output: output.square())
    with pytest.raises(nclab.ModelError, match="found none"):
        nclab.measure(model, [(HEAD_X, HEAD_Y)])


def test_an_earlier_linear_of_the_same_width_is_no_classifier() -> None:
    matrix = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
    model = Heads(lambda net, h: nn.functional.linear(net.main(h).relu(), matrix))
    with pytest.raises(nclab.ModelError, match="found none"):
        nclab.measure(model, [(HEAD_X, HEAD_Y)])
