"""measure gives every layer the values of measure_features."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nclab
from nclab.metrics.catalogue import METRICS
from tests.contract import assert_same

CLASSES = 4
GENERATOR = torch.Generator().manual_seed(0)
Y = torch.randperm(70, generator=GENERATOR) % CLASSES
Places = dict[str, Tensor]
Batches = list[tuple[Tensor, Tensor]]


class Counting(nn.Module):
    """A model that counts its forward passes and computes its features without hooks."""

    passes = 0
    head: nn.Linear

    def data(self) -> Tensor:
        """Return inputs for the model."""
        raise NotImplementedError

    def places(self, x: Tensor) -> Places:
        """Return the input of each layer, one row per sample, computed without hooks."""
        raise NotImplementedError


class Deep(Counting):
    """Fifteen weight layers in blocks (linear, ReLU, batch norm)."""

    def __init__(self) -> None:
        super().__init__()
        widths = [10, *(12 + i % 3 for i in range(14))]
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(nn.Linear(a, b), nn.ReLU(inplace=True), nn.BatchNorm1d(b))
                for a, b in pairwise(widths)
            )
        )
        self.head = nn.Linear(widths[-1], CLASSES)

    def data(self) -> Tensor:
        return torch.randn(70, 10, generator=GENERATOR, dtype=torch.float64) + 0.3 * Y[:, None]

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        out: Tensor = self.head(self.blocks(x))
        return out

    def places(self, x: Tensor) -> Places:
        result = {}
        blocks: Any = self.blocks
        for index, (linear, _, norm) in enumerate(blocks):
            x = functional.linear(x, linear.weight, linear.bias).clamp_min(0)
            x = (x - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
            x = x * norm.weight + norm.bias
            result["blocks" if index == 13 else f"blocks.{index}"] = x
        return result


class Residual(Counting):
    """Convolutions with in-place ReLUs, a shortcut, a functional ReLU and a functional flatten."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.relu = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(6, 8, 3, stride=2, padding=1, bias=False)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.shortcut = nn.Conv2d(6, 8, 1, stride=2)
        self.conv3 = nn.Conv2d(8, 9, 3)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(9, CLASSES)

    def data(self) -> Tensor:
        x = torch.randn(70, 3, 8, 8, generator=GENERATOR, dtype=torch.float64)
        return x + 0.2 * Y[:, None, None, None]

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        x = self.relu(self.norm(self.stem(x)))
        branch = self.conv2(self.relu(self.conv1(x)))
        branch += self.shortcut(x)
        x = functional.relu(self.conv3(self.relu(branch)), inplace=True)
        out: Tensor = self.head(torch.flatten(self.pool(x), 1))
        return out

    def places(self, x: Tensor) -> Places:
        def conv(layer: nn.Conv2d, x: Tensor) -> Tensor:
            return functional.conv2d(x, layer.weight, layer.bias, layer.stride, layer.padding)

        norm = self.norm
        mean, var = norm.running_mean, norm.running_var
        stem = functional.batch_norm(conv(self.stem, x), mean, var, norm.weight, norm.bias).relu()
        inner = conv(self.conv1, stem).relu()
        joined = (conv(self.conv2, inner) + conv(self.shortcut, stem)).relu()
        last = conv(self.conv3, joined).relu()
        maps = {"conv1.input": stem, "conv2.input": inner, "conv3.input": joined}
        return {name: m.mean((2, 3)) for name, m in {**maps, "head.input": last}.items()}


class Attentive(Counting):
    """Two transformer encoder layers over tokens, and a classifier of their mean."""

    def __init__(self, *, batch_first: bool, norm_first: bool = False) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.embed = nn.Linear(5, 8)
        self.encoder = nn.Sequential(
            *(
                nn.TransformerEncoderLayer(
                    8, 2, 12, activation="gelu", batch_first=batch_first, norm_first=norm_first
                )
                for _ in range(2)
            )
        )
        self.head = nn.Linear(8, CLASSES)

    def data(self) -> Tensor:
        x = torch.randn(70, 6, 5, generator=GENERATOR, dtype=torch.float64)
        return x + 0.2 * Y[:, None, None]

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        if self.batch_first:
            out: Tensor = self.head(self.encoder(self.embed(x)).mean(1))
        else:
            out = self.head(self.encoder(self.embed(x.transpose(0, 1))).mean(0))
        return out

    def places(self, x: Tensor) -> Places:
        def norm(layer: nn.LayerNorm, x: Tensor) -> Tensor:
            centred = x - x.mean(-1, keepdim=True)
            spread = (centred.square().mean(-1, keepdim=True) + layer.eps).sqrt()
            return centred / spread * layer.weight + layer.bias

        tokens: Places = {}
        x = functional.linear(x, self.embed.weight, self.embed.bias)
        name = "embed"
        for index, layer in enumerate(self.encoder):
            assert isinstance(layer, nn.TransformerEncoderLayer)
            before = f"encoder.{index}"
            if layer.norm_first:
                tokens[f"{before}.norm1"] = normed = norm(layer.norm1, x)
                x = x + attention(layer.self_attn, normed)
                tokens[f"{before}.norm2"] = normed = norm(layer.norm2, x)
            else:
                tokens[name] = x
                x = norm(layer.norm1, x + attention(layer.self_attn, x))
                tokens[f"{before}.norm1"] = normed = x
            inner = functional.linear(normed, layer.linear1.weight, layer.linear1.bias)
            tokens[f"{before}.dropout"] = inner = functional.gelu(inner)
            x = x + functional.linear(inner, layer.linear2.weight, layer.linear2.bias)
            x = x if layer.norm_first else norm(layer.norm2, x)
            name = before
        return {name: t.mean(1) for name, t in {**tokens, "head.input": x}.items()}


def attention(module: nn.MultiheadAttention, x: Tensor) -> Tensor:
    """Return the self-attention of (B, T, d), head by head."""
    assert module.in_proj_weight is not None
    projected = x @ module.in_proj_weight.T + module.in_proj_bias
    size = module.embed_dim // module.num_heads
    heads = []
    for queries, keys, values in zip(
        *(part.split(size, -1) for part in projected.chunk(3, -1)), strict=True
    ):
        scores = queries @ keys.mT / size**0.5
        heads.append(scores.softmax(-1) @ values)
    return functional.linear(torch.cat(heads, -1), module.out_proj.weight, module.out_proj.bias)


MODELS: dict[str, Callable[[], Counting]] = {
    "mlp": Deep,
    "convolutional": Residual,
    "transformer": lambda: Attentive(batch_first=True),
    "transformer, norm first": lambda: Attentive(batch_first=True, norm_first=True),
    "transformer, sequence first": lambda: Attentive(batch_first=False),
}


def prepared(kind: str, dtype: torch.dtype = torch.float64) -> tuple[Counting, Batches]:
    """Return a model in training mode with batch-norm statistics, and uneven batches."""
    torch.manual_seed(0)
    GENERATOR.manual_seed(1)  # the data do not depend on the tests before
    model = MODELS[kind]().to(dtype)
    x = model.data().to(dtype)
    with torch.no_grad():
        for _ in range(50):  # with fewer the features are all but parallel: 8 digits are lost
            model.train()(x)
    model.passes = 0
    return model, [(x[rows], Y[rows]) for rows in torch.arange(70).split(27)]


def expected(model: Counting, batches: Batches) -> dict[str, nclab.Collapse]:
    """Return the measurement of every layer as an array."""
    parts = [model.places(x) for x, _ in batches]
    rows = {name: torch.cat([part[name] for part in parts]).detach() for name in parts[0]}
    measured = {
        name: nclab.measure_features(value, Y, num_classes=CLASSES) for name, value in rows.items()
    }
    name, last = list(rows.items())[-1]
    measured[name] = nclab.measure_features(last, Y, model.head.weight, model.head.bias)
    return measured


def generator(batches: Batches) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the batches once."""
    yield from batches


@pytest.mark.parametrize("kind", MODELS)
def test_every_layer_equals_the_measurement_of_its_features(kind: str) -> None:
    model, batches = prepared(kind)
    report = nclab.measure(model, batches, layers="all")
    assert model.passes == len(batches) == 3
    reference = expected(model, batches)
    assert [layer.layer for layer in report.layers] == list(reference)
    assert report.skipped == {}
    assert report.remarks == ()
    assert report.classifier == "head"
    assert report.samples == 70
    for name, collapse in reference.items():
        assert report[name].dim == collapse.dim
        assert_same(report[name].scalars(), collapse.scalars(), relative=1e-10, absolute=0)
    known = [value for value in report.last.scalars().values() if value is not None]
    assert len(known) == len(METRICS), "nothing is missing of the last layer"


def test_fifteen_layers_are_fourteen_blocks_and_a_head() -> None:
    model, batches = prepared("mlp")
    assert len(nclab.measure(model, batches, layers="all").layers) == 14
    assert any(buffer.abs().sum() > 0 for buffer in model.buffers())


@pytest.mark.parametrize("kind", MODELS)
def test_the_last_layer_alone_equals_that_of_all_layers(kind: str) -> None:
    model, batches = prepared(kind)
    report = nclab.measure(model, batches)
    assert len(report.layers) == 1
    every = nclab.measure(model, batches, layers="all")
    assert_same(report.last.scalars(), every.last.scalars(), relative=0, absolute=0)
    assert model.passes == 6


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("layers", ["last", "all"])
@pytest.mark.parametrize("kind", MODELS)
def test_cache_and_second_pass_agree(kind: str, layers: str, dtype: torch.dtype) -> None:
    model, batches = prepared(kind, dtype)
    cached = nclab.measure(model, batches, layers=layers)
    assert model.passes == 3
    again = nclab.measure(model, batches, layers=layers, cache_bytes=0)
    assert model.passes == 3 + 6
    assert len(cached.layers) == len(again.layers)
    for left, right in zip(cached.layers, again.layers, strict=True):
        assert left.nc4_ncc_accuracy is not None
        assert_same(right.scalars(), left.scalars(), relative=1e-12, absolute=0)


def test_a_cache_for_some_of_the_layers() -> None:
    model, batches = prepared("mlp")
    whole = nclab.measure(model, batches, layers="all")
    model.passes = 0
    # 70 rows of at most 14 float64 numbers and their labels: room for a few of 14 layers.
    part = nclab.measure(model, batches, layers="all", cache_bytes=3 * 70 * 15 * 8)
    assert model.passes == 6
    for left, right in zip(whole.layers, part.layers, strict=True):
        assert_same(right.scalars(), left.scalars(), relative=1e-12, absolute=0)
    once = nclab.measure(model, generator(batches), layers="all", cache_bytes=3 * 70 * 15 * 8)
    looked = [layer.nc4_ncc_accuracy is not None for layer in once.layers]
    assert any(looked)
    assert not all(looked)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"cache_bytes": 0}, "exceed cache_bytes=0 and the loader can be read only once"),
        ({"second_pass": False}, "not requested (second_pass=False)"),
    ],
)
def test_one_pass_gives_the_other_metrics(options: dict[str, Any], reason: str) -> None:
    model, batches = prepared("convolutional")
    whole = nclab.measure(model, batches, layers="all")
    model.passes = 0
    report = nclab.measure(model, generator(batches), layers="all", **options)
    assert model.passes == 3
    second = {metric.name for metric in METRICS if metric.needs in ("second pass", "both")}
    assert second
    for left, right in zip(whole.layers, report.layers, strict=True):
        for name in second:
            assert getattr(right, name) is None
            if name in left.notes:
                assert right.notes[name] == left.notes[name]
            else:
                assert reason in right.notes[name]
        assert_same(right.scalars(), left.scalars(), relative=0, absolute=0, leaving_out=second)


def test_the_second_pass_of_a_generator_uses_the_cache() -> None:
    model, batches = prepared("mlp")
    whole = nclab.measure(model, batches)
    once = nclab.measure(model, generator(batches))
    assert_same(once.last.scalars(), whole.last.scalars(), relative=0, absolute=0)
    assert model.passes == 6


def test_second_pass_false_reads_the_loader_once() -> None:
    model, batches = prepared("mlp")
    nclab.measure(model, batches, layers="all", second_pass=False, cache_bytes=0)
    assert model.passes == 3


def test_a_loader_is_started_once_for_each_pass() -> None:
    class Loader:
        begun = 0

        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            self.begun += 1
            return iter(batches)

    model, batches = prepared("mlp")
    loader = Loader()
    nclab.measure(model, loader)
    assert loader.begun == 1
    nclab.measure(model, loader, cache_bytes=0)
    assert loader.begun == 3


def test_a_second_pass_over_other_data_raises() -> None:
    class Shrinking:
        begun = 0

        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            self.begun += 1
            return iter(batches[: 4 - self.begun])

    model, batches = prepared("mlp")
    with pytest.raises(nclab.DataError, match="Expected 70 samples in the second pass") as caught:
        nclab.measure(model, Shrinking(), cache_bytes=0)
    assert "\n" not in str(caught.value)


def test_wrapped_models_are_unwrapped() -> None:
    model, batches = prepared("mlp")
    plain = nclab.measure(model, batches, layers="all")
    compiled = torch.compile(model, backend="eager")
    assert isinstance(compiled, nn.Module)
    for wrapper in (nn.DataParallel(model), compiled, nn.DataParallel(compiled)):
        wrapped = nclab.measure(wrapper, batches, layers="all")
        assert wrapped.classifier == "head"
        assert len(wrapped.layers) == 14
        for left, right in zip(plain.layers, wrapped.layers, strict=True):
            assert left.layer == right.layer
            assert_same(right.scalars(), left.scalars(), relative=0, absolute=0)
    by_name = nclab.measure(compiled, batches, layers=["blocks.3"])
    assert_same(by_name["blocks.3"].scalars(), plain["blocks.3"].scalars(), relative=0, absolute=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", MODELS)
def test_low_precision_features_are_measured_in_full_precision(
    kind: str, dtype: torch.dtype
) -> None:
    model, batches = prepared(kind, dtype)
    model.eval()
    features: list[Tensor] = []
    handle = model.head.register_forward_pre_hook(lambda _, args: features.append(args[0]))
    # With gradients on, so that no fused path is taken here either.
    for x, _ in batches:
        model(x)
    handle.remove()
    report = nclab.measure(model, batches, layers="all")
    rows = torch.cat(features).detach()
    assert rows.dtype == dtype
    head = (model.head.weight, model.head.bias)
    reference = nclab.measure_features(rows.double(), Y, *(part.double() for part in head))
    assert_same(report.last.scalars(), reference.scalars(), relative=1e-10, absolute=0)
    precise = expected(model.double(), [(x.double(), y) for x, y in batches])
    for layer in report.layers:
        result, value = layer.mean_inter, precise[str(layer.layer)].mean_inter
        assert result == pytest.approx(value, abs=40 * torch.finfo(dtype).eps)


def error_message(kind: type[Exception], loader: Any, **options: Any) -> str:
    """Return the one-line message of the error for some data."""
    model, _ = prepared("mlp", torch.float32)
    with pytest.raises(kind) as caught:
        nclab.measure(model, loader, **options)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, nclab.NclabError)
    return str(caught.value)


X = torch.randn(70, 10, generator=GENERATOR)


@pytest.mark.parametrize("layers", ["last", "all"])
@pytest.mark.parametrize(
    ("loader", "message"),
    [
        ([], "Expected at least one batch, the loader gave none"),
        (iter([]), "Expected at least one batch, the loader gave none"),
        ([X], "got a Tensor"),
        ([(X,)], "got a tuple"),
        ([(X, Y + 5)], "Expected labels in [0, 4) for the 4 outputs of head, got 8"),
        ([(X, Y), (X, Y + 1)], "Expected labels in [0, 4) for the 4 outputs of head, got 4"),
        ([(X, Y - 1)], "labels from 0 upwards, got -1"),
        ([(X, Y.float())], "integer labels, got float32"),
        ([(X, functional.one_hot(Y))], "does not fit labels of shape (70, 4)"),
        ([(X, Y[:60])], "does not fit labels of shape (60,)"),
        ([(X, Y), (X, Y[:60])], "Cannot measure blocks"),
        ([(X, Y * 0 - 100)], "at least one sample, got none"),
        ([(X, Y % 3)], "samples of all 4 classes, got none of 3. Pass min_count=1"),
        ([(X / 0, Y)], "finite features, got"),
        ([(X[0], 1)], "a single sample of label 1"),
    ],
)
def test_bad_data_in_one_line(loader: Any, message: str, layers: str) -> None:
    assert message in error_message(Exception, loader, layers=layers)


def test_errors_of_data_and_of_models_have_different_types() -> None:
    error_message(nclab.DataError, [(X, Y % 3)])
    error_message(nclab.ModelError, [(X, Y)], classifier="blocks")
    error_message(nclab.ModelError, [(X, Y)], layers=["bloks"])


def test_one_class_raises_even_if_classes_may_be_missing() -> None:
    assert "at least 2 classes, got 1" in error_message(
        nclab.DataError, [(X, Y * 0 + 2)], min_count=1
    )


def test_missing_classes_are_left_out_when_allowed() -> None:
    model, batches = prepared("mlp")
    without = [(x, torch.where(y == 3, 1, y)) for x, y in batches]
    report = nclab.measure(model, without, layers="all", min_count=1)
    labels = torch.where(Y == 3, 1, Y)
    rows = torch.cat([model.places(x)["blocks"] for x, _ in batches]).detach()
    reference = nclab.measure_features(
        rows, labels, model.head.weight, model.head.bias, min_count=1
    )
    assert report.last.classes == (0, 1, 2)
    assert "Left out 1 class without samples: 3." in report.last.warnings
    assert_same(report.last.scalars(), reference.scalars(), relative=1e-10, absolute=0)
    assert report["blocks.0"].classes == (0, 1, 2)


def test_ignored_labels_are_counted_and_left_out() -> None:
    model, batches = prepared("mlp")
    ignored = [(x, torch.where(y == 3, -100, y)) for x, y in batches]
    report = nclab.measure(model, ignored, layers="all", min_count=1)
    kept = [(x[y != 3], y[y != 3]) for x, y in batches]
    reference = nclab.measure(model, kept, layers="all", min_count=1)
    assert report.last.ignored == int((Y == 3).sum())
    assert report.samples == int((Y != 3).sum())
    for left, right in zip(report.layers, reference.layers, strict=True):
        assert_same(left.scalars(), right.scalars(), relative=1e-10, absolute=0)


def test_the_logits_may_come_after_the_features() -> None:
    """The classifier is found by its output if a model returns (features, logits)."""

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            features = self.body(x)
            return features, self.head(features)

    torch.manual_seed(0)
    report = nclab.measure(Both(), [(torch.randn(30, 4), torch.arange(30) % 3)])
    assert report.classifier == "head"
    assert report.last.layer == "body"
    assert report.remarks == ()


def test_a_loader_must_be_iterable_and_a_bare_linear_has_a_name() -> None:
    with pytest.raises(nclab.NclabError, match="Expected a loader of batches, got a int"):
        nclab.measure(nn.Linear(2, 2), 5)  # type: ignore[arg-type]
    report = nclab.measure(nn.Linear(2, 2), [(torch.randn(8, 2), torch.arange(8) % 2)])
    assert report.last.layer == "input"


def test_names_are_not_read_as_markup() -> None:
    model = nn.Sequential()
    model.add_module("c[/]", nn.Linear(2, 4))
    model.add_module("[red]", nn.Linear(4, 2))
    report = nclab.measure(model, [(torch.randn(8, 2), torch.arange(8) % 2)], layers="all")
    assert "c[/]" in str(report)


def test_a_square_last_batch_has_the_layout_of_earlier_batches() -> None:
    """(T, B, d) and (B, T, d) cannot be distinguished if T = B; earlier batches decide."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LSTM(6, 8), nn.LSTM(8, 8)
            self.head = nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            out, _ = self.second(self.first(x.transpose(0, 1))[0])
            logits: Tensor = self.head(out[-1])
            return logits

    torch.manual_seed(0)
    x, y = torch.randn(40, 7, 6), torch.arange(40) % 3
    batches = [(x[rows], y[rows]) for rows in torch.arange(40).split(11)]
    assert len(batches[-1][1]) == 7
    model = Recurrent()
    report = nclab.measure(model, batches, layers="all")
    assert report.layers[0].samples == 40
    whole = nclab.measure(model, [(x, y)], layers="all")
    assert_same(report.layers[0].scalars(), whole.layers[0].scalars(), relative=1e-4)


def test_layers_none_raises() -> None:
    assert "got None" in error_message(nclab.ModelError, [(X, Y)], layers=None)


PEAK = """
import sys
from pathlib import Path
import torch
from torch import nn
import nclab

def peak(work):
    Path("/proc/self/clear_refs").write_text("5")
    size = lambda field: next(
        int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith(field)
    )
    before = size("VmRSS")
    work()
    return size("VmHWM") - before

torch.manual_seed(0)
torch.set_num_threads(1)
layers = [part for _ in range(30) for part in (nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())]
net = nn.Sequential(nn.Conv2d(3, 8, 1), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
net = nn.Sequential(*net, nn.Linear(8, 4)).eval()
x, y = torch.randn(32, 3, 96, 96), torch.arange(32) % 4
nclab.measure(net, [(x[:8, :, :8, :8], y[:8])])  # warm up
with torch.no_grad():
    net(x[:8, :, :8, :8])
    plain = peak(lambda: net(x))
print(plain, peak(lambda: nclab.measure(net, [(x, y)])))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's peak memory")
def test_the_traced_batch_frees_its_activations() -> None:
    """Thirty convolutions use at most twice the memory of a plain forward pass."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    plain, measured = map(int, done.stdout.split())
    assert plain > 9000, "an activation is 9 MB: the measure measures"
    assert measured <= 2 * plain


class Vocabulary(torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """A data set that stores its labels and counts how often it is read."""

    def __init__(self) -> None:
        self.targets = [0, 1, 0, 1] * 10
        self.read = 0

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        self.read += 1
        return torch.eye(4)[number % 4], self.targets[number]


def test_absent_classes_raise_before_the_pass() -> None:
    """The error comes after the first batch, which determines the number of classes."""
    net = nn.Linear(4, 3)
    data = Vocabulary()
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    with pytest.raises(nclab.NclabError, match=r"all 3 classes, got none of 2.*not the classifier"):
        nclab.measure(net, loader)
    assert data.read == 4
    # Where the labels are not known before, at the end of the pass.
    unknown = torch.utils.data.DataLoader(data, batch_size=4, drop_last=True)
    with pytest.raises(nclab.NclabError, match=r"all 3 classes, got none of 2.*not the classifier"):
        nclab.measure(net, unknown)
    assert data.read == 44
    assert nclab.measure(net, loader, min_count=1).last.num_classes == 2


def test_the_error_names_a_loader_without_batches() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    train = [(torch.randn(30, 4), torch.arange(30) % 3)]
    with pytest.raises(nclab.DataError, match="the test loader gave none"):
        nclab.measure(net, train, test=[])


def test_the_classifier_may_be_a_module() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    train = [(torch.randn(30, 4), torch.arange(30) % 3)]
    assert nclab.measure(net, train, classifier=net[2]).classifier == "2"
    with pytest.raises(nclab.ModelError, match="Cannot call classifier= with the model"):
        nclab.measure(net, train, classifier=lambda model: model.nope)
