"""Tests of every kind of head against features and weights from its formula."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import normalize

import nclab
from nclab.features.linear_maps import fit, fit_factor
from tests.contract import assert_same

CLASSES, DIM = 4, 8
X = torch.randn(60, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.arange(60) % CLASSES
BATCHES = [(X[:25], Y[:25]), (X[25:], Y[25:])]

Hand = Callable[[Any, Tensor], tuple[Tensor, Tensor, Tensor | None]]
"""Features, weight and bias of a model whose body gave h."""


class Model(nn.Module):
    """A body with a head that the test passes."""

    def __init__(self, head: nn.Module | None, finish: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(6, DIM), nn.Tanh())
        self.finish = finish
        self.W = nn.Parameter(torch.randn(DIM, CLASSES))
        self.b = nn.Parameter(torch.randn(CLASSES))
        self.scale = nn.Parameter(torch.tensor(1.7))
        self.log_scale = nn.Parameter(torch.tensor(2.3))
        self.emb = nn.Embedding(CLASSES, DIM)
        self.head = head
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.finish(self, self.body(x))


class CosineHead(nn.Module):
    """A cosine head with a learned scale."""

    def __init__(self, *, bias: bool = False, fixed: float | None = None) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.proxies = nn.Parameter(torch.randn(CLASSES, DIM))
        self.offset = nn.Parameter(torch.randn(CLASSES)) if bias else None
        self.scale = nn.Parameter(torch.tensor(12.5)) if fixed is None else None
        self.fixed = fixed

    def forward(self, h: Tensor) -> Tensor:
        z = functional.linear(normalize(h), normalize(self.proxies))
        z = z * (self.scale if self.fixed is None else self.fixed)  # type: ignore[operator]
        return z if self.offset is None else z + self.offset


class UnitWeights(nn.Module):
    """A head whose classifiers have norm 1."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.weight = nn.Parameter(torch.randn(CLASSES, DIM))

    def forward(self, h: Tensor) -> Tensor:
        return h @ normalize(self.weight).T


class Times(nn.Module):
    """A head h @ W with W of shape (d, C)."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.kernel = nn.Parameter(torch.randn(DIM, CLASSES))

    def forward(self, h: Tensor) -> Tensor:
        return h @ self.kernel


class OnGrid(nn.Module):
    """A 1×1 convolution over a grid of one point, then flattened."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(DIM, CLASSES, 1)

    def forward(self, h: Tensor) -> Tensor:
        return self.conv(h[:, :, None, None]).flatten(1)


def old_weight_norm() -> nn.Module:
    with pytest.warns(FutureWarning):
        return nn.utils.weight_norm(nn.Linear(DIM, CLASSES))


def normed(g: Tensor, v: Tensor) -> Tensor:
    return g * normalize(v)


def head_of(model: Any) -> Any:
    return model.head


HEADS: dict[str, tuple[Callable[[], nn.Module | None], Callable[[Any, Tensor], Tensor], Hand]] = {
    "linear": (
        lambda: nn.Linear(DIM, CLASSES),
        lambda m, h: m.head(h),
        lambda m, h: (h, m.head.weight, m.head.bias),
    ),
    "cosine module": (
        CosineHead,
        lambda m, h: m.head(h),
        lambda m, h: (normalize(h), m.head.scale * normalize(m.head.proxies), None),
    ),
    "cosine module with bias": (
        lambda: CosineHead(bias=True),
        lambda m, h: m.head(h),
        lambda m, h: (normalize(h), m.head.scale * normalize(m.head.proxies), m.head.offset),
    ),
    "cosine module of a written scale": (
        lambda: CosineHead(fixed=1 / 0.07),
        lambda m, h: m.head(h),
        lambda m, h: (normalize(h), normalize(m.head.proxies) / 0.07, None),
    ),
    "unit classifiers": (
        UnitWeights,
        lambda m, h: m.head(h),
        lambda m, h: (h, normalize(m.head.weight), None),
    ),
    "cosine without a module": (
        lambda: None,
        lambda m, h: m.log_scale.exp() * normalize(h) @ normalize(m.W, dim=0),
        lambda m, h: (normalize(h), m.log_scale.exp() * normalize(m.W, dim=0).T, None),
    ),
    "temperature without a module": (
        lambda: None,
        lambda m, h: normalize(h) @ normalize(m.W, dim=0) / m.scale,
        lambda m, h: (normalize(h), normalize(m.W, dim=0).T / m.scale, None),
    ),
    "weight norm in the old style": (
        old_weight_norm,
        lambda m, h: m.head(h),
        lambda m, h: (h, normed(m.head.weight_g, m.head.weight_v), m.head.bias),
    ),
    "parametrised weight norm": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(DIM, CLASSES, bias=False)),
        lambda m, h: m.head(h),
        lambda m, h: (h, m.head.weight, None),
    ),
    "orthogonal rows, unit features, scale": (
        lambda: nn.utils.parametrizations.orthogonal(nn.Linear(DIM, CLASSES, bias=False)),
        lambda m, h: m.scale * m.head(normalize(h)),
        lambda m, h: (normalize(h), m.scale * m.head.weight, None),
    ),
    "x @ W of a module": (
        Times,
        lambda m, h: m.head(h),
        lambda m, h: (h, m.head.kernel.T, None),
    ),
    "x @ W + b": (
        lambda: None,
        lambda m, h: h @ m.W + m.b,
        lambda m, h: (h, m.W.T, m.b),
    ),
    "tied embedding": (
        lambda: None,
        lambda m, h: functional.linear(h, m.emb.weight),
        lambda m, h: (h, m.emb.weight, None),
    ),
    "convolution over a grid": (
        OnGrid,
        lambda m, h: m.head(h),
        lambda m, h: (h, m.head.conv.weight.flatten(1), m.head.conv.bias),
    ),
}


def from_formula(model: Any, hand: Hand, labels: Tensor = Y) -> nclab.Collapse:
    """Measure features and weights from the formula as arrays."""
    with torch.no_grad():
        features, weight, bias = hand(model, model.body(X))
        return nclab.measure_features(features, labels, weight, bias)


@pytest.mark.parametrize("name", HEADS)
def test_measure_agrees_with_the_formula(name: str) -> None:
    make, finish, hand = HEADS[name]
    model = Model(make(), finish)
    report = nclab.measure(model, BATCHES)
    expected = from_formula(model, hand)
    assert_same(report.last.scalars(), expected.scalars(), relative=1e-10)
    with torch.no_grad():
        loss = functional.cross_entropy(model(X), Y)
    assert report.last.loss == pytest.approx(float(loss), rel=1e-10)
    assert report.last.accuracy == float((model(X).argmax(1) == Y).double().mean())


@pytest.mark.parametrize("name", HEADS)
def test_the_monitor_agrees_with_the_formula(name: str) -> None:
    """Compare before and after the weights change without a forward pass."""
    make, finish, hand = HEADS[name]
    model = Model(make(), finish)
    with nclab.Monitor(model) as monitor:
        for epoch in range(2):
            for x, y in monitor.watch(BATCHES):
                functional.cross_entropy(model(x), y).backward()
            assert monitor.last is not None
            expected = from_formula(model, hand).scalars()
            measured = monitor.last.report.last.scalars()
            common = {key: value for key, value in expected.items() if measured[key] is not None}
            assert {"loss", "nc3_self_duality", "margin", "accuracy"} <= set(common)
            assert_same(measured, common, relative=1e-10)
            with torch.no_grad():  # the scale changes as well
                for parameter in model.parameters():
                    parameter.mul_(1.1 + 0.1 * epoch)


def test_the_weights_after_a_step_are_measured() -> None:
    make, finish, hand = HEADS["weight norm in the old style"]
    model = Model(make(), finish)
    with nclab.Monitor(model) as monitor:
        for x, y in monitor.watch(BATCHES):
            functional.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            model.head.weight_g.mul_(3.0)  # type: ignore[union-attr, operator]
        expected = from_formula(model, hand)
        now = monitor._layers.head()
        assert now is not None
        head: Any = model.head
        assert torch.allclose(now.weight, normed(head.weight_g, head.weight_v), rtol=1e-12)
        assert not torch.allclose(now.weight, head.weight), "the last forward pass has left that"
        assert monitor.measure(BATCHES).last.beta == pytest.approx(expected.beta, rel=1e-12)


class Pixels(nn.Module):
    """A fully convolutional network, with a class for every point of a grid."""

    def __init__(self, *, pooled: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Conv2d(2, DIM, 3, padding=1), nn.Tanh())
        self.head = nn.Conv2d(DIM, CLASSES, 1)
        self.pooled = pooled
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        z = self.head(self.body(x))
        return z.mean((2, 3)) if self.pooled else z


IMAGES = torch.randn(12, 2, 5, 3, generator=torch.Generator().manual_seed(3)).double()


def test_a_convolution_over_a_grid_of_labels() -> None:
    labels = torch.randint(CLASSES, (12, 5, 3), generator=torch.Generator().manual_seed(4))
    model = Pixels()
    report = nclab.measure(model, [(IMAGES, labels)])
    features = model.body(IMAGES).movedim(1, -1).reshape(-1, DIM).detach()
    weight = model.head.weight.flatten(1)
    expected = nclab.measure_features(features, labels.flatten(), weight, model.head.bias)
    assert report.classifier == "head"
    assert report.remarks == ()
    assert_same(report.last.scalars(), expected.scalars(), relative=1e-10)
    with nclab.Monitor(model) as monitor:
        for x, y in monitor.watch([(IMAGES, labels)]):
            functional.cross_entropy(model(x), y).backward()
    assert monitor.last is not None
    assert monitor.last.report.last.loss == pytest.approx(expected.loss, rel=1e-10)


def test_the_mean_over_a_grid_of_a_convolution() -> None:
    model = Pixels(pooled=True)
    labels = torch.arange(12) % CLASSES
    report = nclab.measure(model, [(IMAGES, labels)])
    features = model.body(IMAGES).mean((2, 3)).detach()
    weight = model.head.weight.flatten(1)
    expected = nclab.measure_features(features, labels, weight, model.head.bias)
    assert report.remarks == ()
    assert_same(report.last.scalars(), expected.scalars(), relative=1e-10)


def test_logits_with_the_classes_second() -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.body, self.head = nn.Linear(3, DIM), nn.Linear(DIM, CLASSES)
            self.double()

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.body(x).tanh()).transpose(1, 2)

    model = Turned()
    tokens = torch.randn(6, 7, 3, generator=torch.Generator().manual_seed(1)).double()
    labels = torch.arange(42).reshape(6, 7) % CLASSES
    report = nclab.measure(model, [(tokens, labels)])
    loss = functional.cross_entropy(model(tokens), labels)
    assert report.last.loss == pytest.approx(float(loss.detach()), rel=1e-10)


@pytest.mark.parametrize("ending", ["column", "flat", "sigmoid", "flat sigmoid"])
@pytest.mark.parametrize("kind", ["class numbers", "floats", "column of floats"])
def test_one_logit_is_two_classes(ending: str, kind: str) -> None:
    endings: dict[str, Callable[[Tensor], Tensor]] = {
        "column": lambda z: z,
        "flat": lambda z: z[:, 0],
        "sigmoid": lambda z: z.sigmoid(),
        "flat sigmoid": lambda z: z[:, 0].sigmoid(),
    }
    model = Model(nn.Linear(DIM, 1), lambda m, h: endings[ending](m.head(h)))
    classes = Y % 2
    labels = {"class numbers": classes, "floats": classes.double()}.get(
        kind, classes[:, None] + 0.0
    )
    report = nclab.measure(model, [(X, labels)])

    def hand(m: Any, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        half = torch.tensor([-0.5, 0.5]).double()
        return h, half[:, None] * m.head.weight, half * m.head.bias

    expected = from_formula(model, hand, classes)
    assert_same(report.last.scalars(), expected.scalars(), relative=1e-10)
    with torch.no_grad():
        z = head_of(model)(model.body(X))[:, 0]
        loss = functional.binary_cross_entropy_with_logits(z, classes.double())
    assert report.last.loss == pytest.approx(float(loss), rel=1e-10)
    assert bool(report.remarks) == ("sigmoid" in ending)
    with nclab.Monitor(model) as monitor:
        for x, _ in monitor.watch([(X, labels)]):
            model(x).sum().backward()
    assert monitor.last is not None
    measured = monitor.last.report.last
    assert measured.loss == pytest.approx(float(loss), rel=1e-10)
    assert measured.nc3_self_duality == pytest.approx(expected.nc3_self_duality, rel=1e-10)


@pytest.mark.parametrize("kind", ["pair", "function", "arrays", "named"])
def test_a_given_classifier(kind: str) -> None:
    model = Model(None, lambda m, h: h @ m.W + m.b)
    given: Any = {
        "pair": (model.W.T, model.b),
        "function": lambda m: (m.W.T, m.b),
        "arrays": (model.W.T.detach().numpy(), model.b.detach().numpy()),
        "named": (model.W.T + 1.0, None),
    }[kind]
    options: dict[str, Any] = {"layers": ["body"]} if kind == "named" else {}
    report = nclab.measure(model, BATCHES, classifier=given, **options)
    weight, bias = (model.W.T + 1.0, None) if kind == "named" else (model.W.T, model.b)
    expected = from_formula(model, lambda m, h: (h, weight, bias))
    assert report.last.layer == "body"
    assert_same(report.last.scalars(), expected.scalars(), relative=1e-10)


def test_a_given_classifier_of_unknown_features_raises() -> None:
    model = Model(None, lambda m, h: h @ m.W)
    wrong = torch.randn(CLASSES, 5)
    with pytest.raises(nclab.ModelError, match=r"that the classifier reads: layers=\['name'\]"):
        nclab.measure(model, BATCHES, classifier=(wrong, None))
    with pytest.raises(nclab.ModelError, match=r"give a pair \(W, b\), got a Parameter"):
        nclab.measure(model, BATCHES, classifier=lambda m: m.W)
    with pytest.raises(nclab.DataError, match="dimension"):
        nclab.measure(model, BATCHES, classifier=(wrong, None), layers=["body"])


def test_features_alone() -> None:
    body = nn.Sequential(nn.Linear(6, DIM), nn.Tanh(), nn.Linear(DIM, 5)).double()
    report = nclab.measure(body, BATCHES, classifier=None)
    expected = nclab.measure_features(body(X).detach(), Y)
    assert (report.classifier, report.last.layer) == ("", "output")
    assert_same(report.last.scalars(), expected.scalars(), relative=1e-10)
    assert "features only · 60 samples" in str(report)
    assert report.last.notes["loss"] == "features only (classifier=None)"
    every = nclab.measure(body, BATCHES, classifier=None, layers="all")
    assert [layer.layer for layer in every.layers] == ["1", "output"]
    with nclab.Monitor(body, classifier=None) as monitor:
        for x, _ in monitor.watch(BATCHES):
            body(x).sum().backward()
    assert monitor.last is not None
    measured = monitor.last.report.last
    assert measured.nc1_trace_pinv == pytest.approx(expected.nc1_trace_pinv, rel=1e-10)
    assert measured.num_classes == CLASSES


def test_the_error_for_an_unknown_head_says_what_to_pass() -> None:
    model = Model(None, lambda m, h: (h @ m.W).square())
    with pytest.raises(nclab.ModelError, match="None to measure features alone") as caught:
        nclab.measure(model, BATCHES)
    assert "\n" not in str(caught.value)
    given = nclab.measure(model, BATCHES, classifier=lambda m: (m.W.T, None), layers=["body"])
    expected = from_formula(model, lambda m, h: (h, m.W.T, None))
    assert given.last.loss == pytest.approx(expected.loss, rel=1e-10)
    alone = nclab.measure(model, BATCHES, classifier=None, layers=["body"])
    assert alone.last.cdnv == pytest.approx(expected.cdnv, rel=1e-10)


@pytest.mark.parametrize(("head", "passes"), [(nn.Linear(DIM, CLASSES), 1), (CosineHead(), 2)])
def test_only_a_head_of_another_form_needs_the_first_batch_twice(
    head: nn.Module, passes: int
) -> None:
    net = nn.Sequential(nn.Linear(6, DIM), nn.Tanh(), head).double()
    outputs: list[Tensor] = []
    net[0].register_forward_hook(lambda module, args, output: outputs.append(output))
    assert nclab.measure(net, BATCHES).classifier == "2"
    assert len(outputs) == passes + 1


GENERATOR = torch.Generator().manual_seed(0)
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]


ROWS = 40


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


H, W, B = normal(ROWS, DIM), normal(CLASSES, DIM), normal(CLASSES)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1.0, 0.25, 30.0, 1 / 0.07, -2.0, 0.123456789])
def test_a_factor_is_found_in_any_precision(scale: float, dtype: torch.dtype) -> None:
    h, w, b = (part.to(dtype) for part in (H, W, B))
    eps = torch.finfo(dtype).eps
    near = 64 * eps if eps < 1e-5 else eps
    for logits, bias, both in (
        (scale * (h @ w.T), None, False),
        (scale * (h @ w.T) + b, b, False),
        (scale * (h @ w.T + b), b, scale != 1.0),
    ):
        form = fit(h, logits, w, bias)
        assert form is not None
        assert form.scale == pytest.approx(scale, rel=near)
        assert (form.unit_rows, form.unit_weight, form.scaled_bias) == (False, False, both)
        assert form.with_bias == (bias is not None)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nonlinear_maps_do_not_fit(dtype: torch.dtype) -> None:
    h, w = H.to(dtype), W.to(dtype)
    z = h @ w.T
    others = {
        "square": z.square(),
        "bounded": 3 * (z / 3).tanh(),
        "probabilities": z.softmax(-1),
        "log of them": z.log_softmax(-1),
        "another matrix": h @ (w + 0.3).T,
        "noise": torch.randn(z.shape, generator=GENERATOR).to(dtype),
    }
    for name, logits in others.items():
        assert fit_factor(z, logits) is None, name
        if torch.finfo(dtype).eps < 1e-5:  # in half precision the plain product may fit
            assert fit(h, logits, w, None) is None, name


def test_too_few_or_undefined_rows_do_not_fit() -> None:
    z = normal(2, CLASSES)
    assert fit_factor(z, 2 * z) is None
    assert fit_factor(normal(9, CLASSES), torch.zeros(9, CLASSES)) is None
    assert fit_factor(normal(9, CLASSES), torch.full((9, CLASSES), torch.nan)) is None
    assert fit_factor(normal(9, CLASSES), normal(9, CLASSES)) is None
