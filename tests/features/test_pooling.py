"""Tests of how maps and tokens become rows, alone and inside a measurement."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nclab
from nclab.features.pooling import NoRows, channel_dim, has_known_channels, to_rows
from tests.contract import assert_same

GENERATOR = torch.Generator().manual_seed(0)
B, D, H, W, T = 4, 3, 5, 6, 7
LABELS = torch.tensor([2, 0, 1, 2])
MAP = torch.randn(B, D, H, W, generator=GENERATOR)
TOKENS = torch.randn(B, T, D, generator=GENERATOR)
TOKEN_LABELS = torch.randint(0, 3, (B, T), generator=GENERATOR)
MASK = torch.tensor([[1] * n + [0] * (T - n) for n in (7, 1, 3, 0)])
ANY = nn.ReLU()


class MapNorm(nn.LayerNorm):
    """A layer norm over the channels of maps (B, d, H, W), as in ConvNeXt."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


@pytest.mark.parametrize(
    ("module", "ndim", "expected"),
    [
        (nn.Conv1d(2, 2, 1), 3, 1),
        (nn.BatchNorm1d(2), 3, 1),
        (nn.GroupNorm(1, 2), 3, 1),
        (nn.InstanceNorm1d(2), 3, 1),
        (nn.MaxPool1d(2), 3, 1),
        (nn.AvgPool1d(2), 3, 1),
        (nn.AdaptiveAvgPool1d(2), 3, 1),
        (nn.AdaptiveMaxPool1d(2), 3, 1),
        (nn.Conv3d(2, 2, 1), 5, 1),
        (nn.Linear(2, 2), 3, -1),
        (nn.Linear(2, 2), 4, -1),
        (nn.LayerNorm(2), 4, -1),
        (nn.MultiheadAttention(2, 1), 3, -1),
        (nn.GRU(2, 2), 3, -1),
        (nn.Embedding(2, 2), 4, -1),
        (ANY, 3, -1),
        (ANY, 4, 1),
        (MapNorm(2), 4, 1),
    ],
)
def test_channel_dim(module: nn.Module, ndim: int, expected: int) -> None:
    assert channel_dim(module, ndim) == expected


def test_has_known_channels() -> None:
    assert has_known_channels(nn.Conv2d(1, 1, 1))
    assert has_known_channels(nn.LayerNorm(1))
    assert not has_known_channels(MapNorm(1))
    assert not has_known_channels(ANY)


def test_vectors_are_copied_unchanged() -> None:
    features = torch.randn(B, D)
    rows = to_rows(features, LABELS, ANY)
    assert torch.equal(rows, features)
    rows.zero_()
    assert features.any()
    column = to_rows(features, LABELS[:, None], ANY)
    assert torch.equal(column, features), "labels of shape (B, 1)"


def test_maps_are_averaged_over_pixels() -> None:
    rows = to_rows(MAP, LABELS, nn.Conv2d(D, D, 1))
    for sample in range(B):
        for channel in range(D):
            pixels = [float(v) for v in MAP[sample, channel].flatten()]
            assert float(rows[sample, channel]) == pytest.approx(sum(pixels) / (H * W), rel=1e-12)


def test_flattened_maps_agree_with_torch_flatten() -> None:
    rows = to_rows(MAP, LABELS, nn.Conv2d(D, D, 1), pool="flatten")
    assert torch.equal(rows, MAP.flatten(1))
    rows.zero_()
    assert MAP.any()


def test_tokens_are_averaged_over_positions() -> None:
    rows = to_rows(TOKENS, LABELS, nn.Linear(D, D))
    assert torch.allclose(rows, TOKENS.double().mean(1), rtol=1e-12)
    assert to_rows(TOKENS, LABELS, nn.Linear(D, D), pool="flatten").shape == (B, T * D)


def test_the_same_tensor_as_tokens_and_as_a_signal() -> None:
    signal = to_rows(TOKENS, LABELS, nn.Conv1d(T, 2, 1))
    assert torch.allclose(signal, TOKENS.double().mean(2), rtol=1e-12)


def test_masked_tokens_do_not_count() -> None:
    rows = to_rows(TOKENS, LABELS, nn.Linear(D, D), mask=MASK)
    for sample, length in enumerate((7, 1, 3)):
        mean = TOKENS[sample, :length].double().mean(0)
        assert torch.allclose(rows[sample], mean, rtol=1e-12)
    assert not rows[3].any(), "a sample without tokens"
    pooled = to_rows(TOKENS, LABELS, nn.Linear(D, D), mask=MASK[:, :5])
    assert torch.allclose(pooled, TOKENS.double().mean(1)), "a mask of other positions"


def test_every_position_with_a_label_is_a_row() -> None:
    rows = to_rows(TOKENS, TOKEN_LABELS, nn.Linear(D, D), mask=MASK)
    assert torch.equal(rows, TOKENS.reshape(-1, D))
    rows.zero_()
    assert TOKENS.any(), "rows are a copy"
    pixels = to_rows(MAP, torch.zeros(B, H, W), nn.Conv2d(D, D, 1))
    assert torch.equal(pixels[W], MAP[0, :, 1, 0]), "pixel (1, 0) of the first map"
    assert pixels.shape == (B * H * W, D)


def test_sequence_first_is_recognised_by_shape() -> None:
    turned, linear = TOKENS.transpose(0, 1), nn.Linear(D, D)
    expected = to_rows(TOKENS, LABELS, linear, mask=MASK)
    rows = to_rows(turned, LABELS, linear, mask=MASK, sequence_first=True)
    assert torch.equal(rows, expected)
    batch_first = to_rows(TOKENS, LABELS, linear, mask=MASK, sequence_first=True)
    assert torch.equal(batch_first, expected)
    tokens = to_rows(turned, TOKEN_LABELS, linear, sequence_first=True)
    assert torch.equal(tokens, TOKENS.reshape(-1, D))
    with pytest.raises(NoRows, match="does not fit labels"):
        to_rows(turned, LABELS, linear)


def test_windows_of_a_batch_are_not_mistaken_for_a_sequence() -> None:
    windows = torch.randn(3 * B, B, D)  # as many tokens in a window as samples in the batch
    with pytest.raises(NoRows, match="does not fit"):
        to_rows(windows, LABELS, nn.Linear(D, D))


@pytest.mark.parametrize(
    ("tensor", "labels", "reason"),
    [
        (torch.zeros(B, B, D), LABELS, r"\(4, 4, 3\) could be batch first or sequence first"),
        (torch.zeros(B + 1, D), LABELS, r"\(5, 3\) does not fit labels of shape \(4,\)"),
        (torch.zeros(B), LABELS, "does not fit"),
        (torch.zeros(B + 1, T, D), LABELS, "does not fit"),
        (torch.zeros(B, T + 1, D), TOKEN_LABELS, "does not fit"),
        (torch.zeros(B, D), TOKEN_LABELS, "does not fit"),
        (torch.zeros(B, D, dtype=torch.int64), LABELS, "it holds torch.int64 values"),
        (
            torch.nested.nested_tensor([torch.ones(2, D)] * B, layout=torch.jagged),
            LABELS,
            "it holds nested values",
        ),
    ],
)
def test_tensors_without_a_row_per_label_raise(tensor: Tensor, labels: Tensor, reason: str) -> None:
    with pytest.raises(NoRows, match=reason):
        to_rows(tensor, labels, nn.Linear(D, D), sequence_first=True)


class Tagger(nn.Module):
    """A model with logits for every token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.fc = nn.Linear(8, 10)
        self.head = nn.Linear(10, 4)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        return {"logits": self.head(self.fc(self.embed(input_ids)).tanh())}


@pytest.mark.parametrize("padding", [-100, 255])
def test_token_logits_are_measured_on_the_tokens_that_have_labels(padding: int) -> None:
    torch.manual_seed(0)
    model = Tagger().double()
    ids = torch.randint(0, 20, (24, 9))
    labels = torch.randint(0, 4, (24, 9))
    keep = torch.arange(9) < torch.randint(2, 10, (24, 1))
    labels[~keep] = padding
    batches = [
        {"input_ids": ids[rows], "attention_mask": keep[rows].long(), "labels": labels[rows]}
        for rows in torch.arange(24).split(7)
    ]
    report = nclab.measure(model, batches, layers="all", ignore_index=padding)
    with torch.no_grad():
        embedded = model.embed(ids)
        hidden = model.fc(embedded).tanh()
    assert [layer.layer for layer in report.layers] == ["embed", "head.input"]
    first = nclab.measure_features(embedded[keep], labels[keep], num_classes=4)
    last = nclab.measure_features(hidden[keep], labels[keep], model.head.weight, model.head.bias)
    assert_same(report["embed"].scalars(), first.scalars(), relative=1e-10)
    assert_same(report.last.scalars(), last.scalars(), relative=1e-10)
    assert report.last.ignored == report["embed"].ignored == int((~keep).sum()) > 0
    assert report.samples == int(keep.sum())


class Reader(nn.Module):
    """A classifier of sequences by their first token, with masked attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(8, 3)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        hidden = self.encoder(self.embed(input_ids), src_key_padding_mask=attention_mask == 0)
        return {"logits": self.head(hidden[:, 0])}


def test_sequences_are_averaged_over_the_tokens_that_the_mask_keeps() -> None:
    torch.manual_seed(0)
    model = Reader().double()
    ids, labels = torch.randint(0, 20, (45, 6)), torch.arange(45) % 3
    mask = (torch.arange(6) < torch.randint(1, 7, (45, 1))).long()
    mask[:, 5] = torch.arange(45) % 2  # not only padding at the end
    batches = [
        ({"input_ids": ids[rows], "attention_mask": mask[rows]}, labels[rows])
        for rows in torch.arange(45).split(20)
    ]
    report = nclab.measure(model, batches, layers="all")
    model.eval()
    hidden = model.embed(ids)
    expected = {"embed": hidden}
    for index, layer in enumerate(model.encoder.layers):
        name = f"encoder.layers.{index}"
        assert isinstance(layer, nn.TransformerEncoderLayer)
        padded = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(mask == 0, -torch.inf)
        attended, _ = layer.self_attn(hidden, hidden, hidden, key_padding_mask=padded)
        hidden = expected[f"{name}.norm1"] = layer.norm1(hidden + attended)
        expected[f"{name}.dropout"] = functional.relu(layer.linear1(hidden))
        hidden = layer.norm2(hidden + layer.linear2(expected[f"{name}.dropout"]))
        expected[name] = hidden
    last = expected.popitem()[1][:, 0]
    assert [layer.layer for layer in report.layers] == [*expected, "head.input"]
    assert report.skipped == {}
    for name, tokens in expected.items():
        rows = torch.stack([tokens[i][mask[i] == 1].mean(0) for i in range(45)])
        reference = nclab.measure_features(rows, labels, num_classes=3)
        assert_same(report[name].scalars(), reference.scalars(), relative=1e-10)
    reference = nclab.measure_features(last, labels, model.head.weight, model.head.bias)
    assert_same(report.last.scalars(), reference.scalars(), relative=1e-10)


class Signal(nn.Module):
    """A 1-D convolutional network, whose tensors (B, d, L) resemble tokens (B, T, d)."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Conv1d(2, 5, 3), nn.ReLU())
        self.conv = nn.Conv1d(5, 6, 3)
        self.relu = nn.ReLU()
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.relu(self.conv(self.block(x))).mean(-1))
        return out


@pytest.mark.parametrize("pool", ["mean", "flatten"])
def test_channels_of_a_signal_are_found_after_activations_and_blocks(pool: Any) -> None:
    torch.manual_seed(0)
    model = Signal().double()
    x, labels = torch.randn(30, 2, 12, dtype=torch.float64), torch.arange(30) % 3
    batches = [(x[rows], labels[rows]) for rows in torch.arange(30).split(11)]
    with torch.no_grad():
        block = model.block(x)
        conv = model.conv(block)
    maps = {"block": block, "conv.input": block, "conv": conv, "relu": conv.relu()}
    report = nclab.measure(model, batches, layers=list(maps), pool=pool)
    everything = nclab.measure(model, batches, layers="all", pool=pool)
    assert_same(everything["block"].scalars(), report["block"].scalars(), relative=0, absolute=0)
    for name, features in maps.items():
        rows = features.mean(2) if pool == "mean" else features.flatten(1)
        reference = nclab.measure_features(rows, labels, num_classes=3)
        assert report[name].dim == rows.shape[1]
        assert_same(report[name].scalars(), reference.scalars(), relative=1e-10)


def test_an_unknown_pool_raises() -> None:
    bad: Any = "max"
    with pytest.raises(nclab.ModelError, match="pool='mean' or 'flatten', got 'max'"):
        nclab.measure(Signal(), [(torch.randn(6, 2, 12), torch.arange(6) % 3)], pool=bad)
