"""Tests of heads whose results the model selects from, averages, scales or adds up."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nclab
from tests.contract import assert_same

CLASSES, DIM, TOKENS, SAMPLES = 3, 6, 5, 48
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(SAMPLES, TOKENS, 4, generator=GENERATOR).double()
Y = torch.arange(SAMPLES) % CLASSES
LENGTHS = torch.randint(1, TOKENS + 1, (SAMPLES,), generator=GENERATOR)
MASK = (torch.arange(TOKENS) < LENGTHS[:, None]).long()
EVERY = torch.arange(SAMPLES)

Finish = Callable[[Any, Tensor, Tensor], Tensor]


class Tokens(nn.Module):
    """Features of tokens and two heads, combined by a function of the test."""

    def __init__(self, finish: Finish) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(4, DIM), nn.Tanh())
        self.head, self.other = nn.Linear(DIM, CLASSES), nn.Linear(DIM, CLASSES)
        self.W = nn.Parameter(torch.randn(DIM, CLASSES))
        self.emb = nn.Embedding(CLASSES, DIM)
        self.c = nn.Parameter(torch.randn(CLASSES))
        self.t = nn.Parameter(torch.tensor(1.7))
        self.finish = finish
        self.double()

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        mask = torch.ones(x.shape[:2]).long() if attention_mask is None else attention_mask
        return self.finish(self, self.body(x), mask)


def last_real(z: Tensor, mask: Tensor) -> Tensor:
    return z[torch.arange(len(z)), mask.sum(1) - 1]


def masked_mean(z: Tensor, mask: Tensor) -> Tensor:
    return (z * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


Hand = Callable[[Any, Tensor, Tensor], tuple[Tensor, Tensor, Tensor | None]]
"""Features, weight and bias."""

USES: dict[str, tuple[Finish, Hand]] = {
    "last token": (
        lambda m, h, mask: m.head(h)[:, -1],
        lambda m, h, mask: (h[:, -1], m.head.weight, m.head.bias),
    ),
    "first token": (
        lambda m, h, mask: m.head(h)[:, 0],
        lambda m, h, mask: (h[:, 0], m.head.weight, m.head.bias),
    ),
    "last real token": (
        lambda m, h, mask: last_real(m.head(h), mask),
        lambda m, h, mask: (last_real(h, mask), m.head.weight, m.head.bias),
    ),
    "mean of real tokens": (
        lambda m, h, mask: masked_mean(m.head(h), mask),
        lambda m, h, mask: (masked_mean(h, mask), m.head.weight, m.head.bias),
    ),
    "mean of all tokens": (
        lambda m, h, mask: m.head(h).mean(1),
        lambda m, h, mask: (h.mean(1), m.head.weight, m.head.bias),
    ),
    "last token, scaled": (
        lambda m, h, mask: m.head(h)[:, -1] / 0.1,
        lambda m, h, mask: (h[:, -1], m.head.weight / 0.1, m.head.bias / 0.1),
    ),
    "last token without a module": (
        lambda m, h, mask: (h @ m.W)[:, -1],
        lambda m, h, mask: (h[:, -1], m.W.T, None),
    ),
    "a constant factor": (
        lambda m, h, mask: (h[:, 0] @ m.W) * 0.25,
        lambda m, h, mask: (h[:, 0], m.W.T * 0.25, None),
    ),
    "a factor and a bias": (
        lambda m, h, mask: -0.3 * (h[:, 0] @ m.W + m.c),
        lambda m, h, mask: (h[:, 0], -0.3 * m.W.T, -0.3 * m.c),
    ),
    "an embedding and an offset": (
        lambda m, h, mask: h[:, 0] @ m.emb.weight.T + m.c,
        lambda m, h, mask: (h[:, 0], m.emb.weight, m.c),
    ),
    "a learned temperature": (
        lambda m, h, mask: m.head(h[:, 0]) / m.t,
        lambda m, h, mask: (h[:, 0], m.head.weight / m.t, m.head.bias / m.t),
    ),
}


def batches(size: int = 20) -> list[dict[str, Tensor]]:
    parts = [part.split(size) for part in (X, MASK, Y)]
    names = ("x", "attention_mask", "labels")
    return [dict(zip(names, batch, strict=True)) for batch in zip(*parts, strict=True)]


def from_formula(model: Tokens, hand: Hand) -> nclab.Collapse:
    with torch.no_grad():
        return nclab.measure_features(*_ordered(*hand(model, model.body(X), MASK)))


def _ordered(features: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    return features, Y, weight, bias


def prepared(name: str) -> tuple[Tokens, Hand]:
    """Return a model with the given ending, and its formula."""
    finish, hand = USES[name]
    return Tokens(finish), hand


@pytest.mark.parametrize("name", USES)
def test_measure_agrees_with_the_formula(name: str) -> None:
    model, hand = prepared(name)
    report = nclab.measure(model, batches())
    assert_same(report.last.scalars(), from_formula(model, hand).scalars(), relative=1e-10)
    with torch.no_grad():
        z = model(X, MASK)
    assert report.last.loss == pytest.approx(float(functional.cross_entropy(z, Y)), rel=1e-10)
    assert report.last.accuracy == float((z.argmax(1) == Y).double().mean())


@pytest.mark.parametrize("name", USES)
def test_the_monitor_agrees_with_the_formula(name: str) -> None:
    """Compare before and after the weights change without a forward pass."""
    model, hand = prepared(name)
    with nclab.Monitor(model) as monitor:
        for epoch in range(2):
            for batch in monitor.watch(batches()):
                inputs = {key: value for key, value in batch.items() if key != "labels"}
                functional.cross_entropy(model(**inputs), batch["labels"]).backward()
            assert monitor.last is not None
            expected = from_formula(model, hand).scalars()
            measured = monitor.last.report.last.scalars()
            common = {key: value for key, value in expected.items() if measured[key] is not None}
            assert {"loss", "nc3_self_duality", "margin", "accuracy"} <= set(common)
            assert_same(measured, common, relative=1e-10)
            with torch.no_grad():  # the temperature changes as well
                for parameter in model.parameters():
                    parameter.mul_(1.1 + 0.1 * epoch)


@pytest.mark.parametrize("name", ["last token", "last real token", "mean of all tokens"])
def test_a_named_head_is_measured_as_the_model_uses_it(name: str) -> None:
    model, hand = prepared(name)
    report = nclab.measure(model, batches(), classifier="head")
    assert_same(report.last.scalars(), from_formula(model, hand).scalars(), relative=1e-10)


@pytest.mark.parametrize("name", ["last real token", "mean of all tokens", "last token"])
def test_a_given_head_is_measured_as_the_model_uses_it(name: str) -> None:
    model, hand = prepared(name)
    pair = lambda m: (m.head.weight, m.head.bias)  # noqa: E731
    report = nclab.measure(model, batches(), classifier=pair)
    assert report.remarks == ()
    assert_same(report.last.scalars(), from_formula(model, hand).scalars(), relative=1e-10)


def test_the_second_pass_selects_the_same_tokens() -> None:
    model, hand = prepared("last real token")
    report = nclab.measure(model, batches(), cache_bytes=0)
    assert_same(report.last.scalars(), from_formula(model, hand).scalars(), relative=1e-10)


def test_earlier_layers_are_pooled_as_usual() -> None:
    model, hand = prepared("last token")
    report = nclab.measure(model, batches(), layers=["body.0", "body"])
    with torch.no_grad():
        first = nclab.measure_features(masked_mean(model.body[0](X), MASK), Y)
    assert report["body.0"].cdnv == pytest.approx(first.cdnv, rel=1e-10)
    assert report["body"].loss == pytest.approx(from_formula(model, hand).loss, rel=1e-10)


def test_sequences_first() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.gru, self.head = nn.GRU(4, DIM), nn.Linear(DIM, CLASSES)
            self.double()

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.gru(x.transpose(0, 1))[0])[-1]

    model = Recurrent()
    report = nclab.measure(model, [(X[:20], Y[:20]), (X[20:], Y[20:])])
    with torch.no_grad():
        features = model.gru(X.transpose(0, 1))[0][-1]
        expected = nclab.measure_features(features, Y, model.head.weight, model.head.bias)
    assert_same(report.last.scalars(), expected.scalars(), relative=1e-10)


def test_one_logit_of_the_last_token() -> None:
    model = Tokens(lambda m, h, mask: m.head(h)[:, -1, 0])
    model.head = nn.Linear(DIM, 1).double()
    labels = Y % 2
    with torch.no_grad():
        z = model(X)
        loss = functional.binary_cross_entropy_with_logits(z, labels.double())
    report = nclab.measure(model, [(X, labels)])
    assert report.last.loss == pytest.approx(float(loss), rel=1e-10)


def test_half_precision_logits_select_the_same_token() -> None:
    model = Tokens(lambda m, h, mask: last_real(m.head(h), mask)).bfloat16()
    rounded = [{**batch, "x": batch["x"].bfloat16()} for batch in batches()]
    report = nclab.measure(model, rounded)
    with torch.no_grad():
        features = last_real(model.body(X.bfloat16()), MASK)
    expected = nclab.measure_features(features, Y, model.head.weight, model.head.bias)
    assert report.last.cdnv == pytest.approx(expected.cdnv, rel=1e-6)


def test_a_selected_token_gives_a_remark() -> None:
    report = nclab.measure(prepared("last token")[0], batches())
    assert report.remarks == (
        "the model selects one position of the result of head: the features are those of that "
        "position",
    )


def test_a_batch_without_a_selected_token_raises() -> None:
    def finish(m: Any, h: Tensor, mask: Tensor) -> Tensor:
        z = m.head(h)
        return z[:, -1] if len(h) == 20 else z.amax(1)

    with pytest.raises(nclab.ModelError, match="no single position of a sample has the logits"):
        nclab.measure(Tokens(finish), batches())


def test_a_named_head_that_makes_no_output_gives_a_remark() -> None:
    model = Tokens(lambda m, h, mask: m.head(h).amax(1))
    report = nclab.measure(model, batches(), classifier="head")
    assert report.remarks == (
        "no output of the model is the result of head on the measured features; loss, accuracy and "
        "margin are computed from the classifier's logits",
    )
    pair = (model.head.weight, model.head.bias)
    given = nclab.measure(model, batches(), classifier=pair, layers=["body"])
    assert "no output of the model is the result of the given classifier" in given.remarks[0]


def test_logits_of_every_position_with_one_label_per_sample_give_a_remark() -> None:
    report = nclab.measure(Tokens(lambda m, h, mask: m.head(h)), batches())
    assert "logits for every position, but there is one label per sample" in report.remarks[0]


def test_tied_weights_with_the_classes_second() -> None:
    model = Tokens(lambda m, h, mask: functional.linear(h, m.emb.weight).transpose(1, 2))
    labels = torch.arange(SAMPLES * TOKENS).reshape(SAMPLES, TOKENS) % CLASSES
    report = nclab.measure(model, [(X, labels)])
    with torch.no_grad():
        loss = functional.cross_entropy(model(X), labels)
    assert report.last.loss == pytest.approx(float(loss), rel=1e-10)
    assert report.classifier == "emb.weight"
