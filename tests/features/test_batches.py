"""Tests of the batches that a loader may yield, and of the labels that a model's own loss uses."""

import os
from collections import UserDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nclab
from nclab.errors import DataError
from nclab.features.batches import (
    LABEL_KEYS,
    Batch,
    labels_of,
    model_loss,
    next_labels,
    split_batch,
)

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}

CPU = torch.device("cpu")
X = torch.arange(6.0).reshape(2, 3)
Z = -X
Y = torch.tensor([1, 0])
MASK = torch.tensor([[1, 1, 0], [1, 0, 0]])


class Pair(NamedTuple):
    """A batch with named parts."""

    image: Tensor
    target: Tensor


def split(batch: Any) -> Batch:
    """Return the batch split on the CPU."""
    return split_batch(batch, CPU)


@pytest.mark.parametrize("batch", [(X, Y), [X, Y], Pair(X, Y), (X, [1, 0]), (X, Y.numpy())])
def test_inputs_and_labels(batch: Any) -> None:
    parts = split(batch)
    assert len(parts.args) == 1
    assert parts.args[0] is X
    assert parts.kwargs == {}
    assert parts.labels.tolist() == [1, 0]
    assert parts.mask is None


def test_the_last_part_is_the_labels() -> None:
    parts = split((X, Z, Y))
    assert parts.args == (X, Z)
    assert parts.labels.tolist() == [1, 0]


@pytest.mark.parametrize("key", LABEL_KEYS)
@pytest.mark.parametrize("kind", [dict, UserDict])
def test_a_mapping_becomes_keywords(key: str, kind: Any) -> None:
    parts = split(kind({"pixels": X, key: Y}))
    assert parts.args == ()
    assert list(parts.kwargs) == ["pixels"]
    assert parts.labels.tolist() == [1, 0]


def test_a_mapping_with_separate_labels_becomes_keywords() -> None:
    parts = split(({"input_ids": X, "attention_mask": MASK}, Y))
    assert parts.args == ()
    assert set(parts.kwargs) == {"input_ids", "attention_mask"}
    assert parts.mask is not None
    assert torch.equal(parts.mask, MASK)


def test_only_a_two_dimensional_mask_is_a_mask() -> None:
    batch = {"x": X, "labels": Y}
    assert split({**batch, "attention_mask": MASK}).mask is not None
    assert split({**batch, "attention_mask": MASK[:, None]}).mask is None
    assert split({**batch, "attention_mask": None}).mask is None


def test_tensors_move_to_the_device_of_the_model() -> None:
    batch = {
        "x": X,
        "more": [X, (Z,), {"deep": X}],
        "attention_mask": MASK,
        "name": "kept",
        "labels": [1, 0],
    }
    parts = split_batch(batch, torch.device("meta"))
    assert parts.labels.is_meta
    assert parts.mask is not None
    assert parts.mask.is_meta
    assert len(parts.tensors()) == 5
    assert all(tensor.is_meta for tensor in parts.tensors())
    assert parts.kwargs["name"] == "kept"
    assert isinstance(parts.kwargs["more"], list)
    assert isinstance(parts.kwargs["more"][1], tuple)


def test_tensors_inside_lists_and_mappings_are_inputs() -> None:
    parts = split(([X, {"z": Z}], MASK, Y))
    assert [id(tensor) for tensor in parts.tensors()] == [id(X), id(Z), id(MASK)]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (X, "got a Tensor"),
        ((X,), "got a tuple"),
        ([], "got a list"),
        (None, "got a NoneType"),
        ("xy", "got a str"),
        ({"x": X, "idx": Y}, "one of labels, label, targets, target, y, got the keys x, idx"),
        ((X, None), "integer labels, got a NoneType"),
        ((X, ["cat", "dog"]), "integer labels, got names such as 'cat'"),
        ((X, 7), "a single sample of label 7. Pass a DataLoader"),
        ((X, torch.tensor(7)), "a single sample of label 7"),
    ],
)
def test_other_batches_raise_in_one_line(batch: Any, message: str) -> None:
    with pytest.raises(nclab.DataError, match=message) as caught:
        split(batch)
    assert "\n" not in str(caught.value)


def test_labels_of_does_not_guess_the_labels() -> None:
    index = torch.tensor([0, 1])
    assert labels_of((X, MASK, Y))[0] is Y
    assert labels_of((X, Z, Y))[0] is Y
    with pytest.raises(DataError, match="3 parts of which 2 may be the labels"):
        labels_of((X, Y, index))
    monitor = nclab.Monitor(torch.nn.Linear(3, 2))
    with pytest.raises(DataError, match=r"labels=lambda batch: batch\[1\]"):
        next(iter(monitor.watch([(X, Y, index)])))
    watched = monitor.watch([(X, Y, index)], labels=lambda batch: batch[1])
    assert next(iter(watched))[1] is Y


# Labels of tokens, and the model's own loss

WORDS, LENGTH = 7, 12


@dataclass
class Output:
    """An output object of a Hugging Face model."""

    logits: Tensor
    loss: Tensor | None = None


class Causal(nn.Module):
    """A small language model that shifts its labels or not, and returns its loss."""

    def __init__(self, *, shift: bool = True, bound: float | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.emb, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, WORDS)
        self.shift, self.bound = shift, bound
        self.double()

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Output:
        logits = self.head(self.emb(input_ids).tanh())
        logits = logits if self.bound is None else self.bound * (logits / self.bound).tanh()
        if labels is None:
            return Output(logits)
        targets = next_labels(labels, -100) if self.shift else labels
        return Output(logits, functional.cross_entropy(logits.flatten(0, 1), targets.flatten()))


TOKENS = torch.randint(WORDS, (10, LENGTH), generator=torch.Generator().manual_seed(0))


def from_formula(model: Causal, labels: Tensor, *, shift: bool) -> nclab.Collapse:
    """Measure all tokens but the last, with the labels of all tokens but the first."""
    with torch.no_grad():
        h = model.emb(TOKENS).tanh()
    rows, targets = (h[:, :-1], labels[:, 1:]) if shift else (h, labels)
    used = targets.flatten() != -100
    rows, targets = rows.flatten(0, 1)[used], targets.flatten()[used]
    return nclab.measure_features(rows, targets, model.head.weight, model.head.bias)


@pytest.mark.parametrize("shift", [True, False])
@pytest.mark.parametrize(
    "labels", [TOKENS, TOKENS.roll(1, 0), TOKENS.masked_fill(TOKENS == 3, -100)]
)
def test_labels_are_used_as_the_model_uses_them(labels: Tensor, shift: bool) -> None:
    model = Causal(shift=shift)
    missing = 3 not in labels
    batch = [{"input_ids": TOKENS[:4], "labels": labels[:4]}]
    batch += [{"input_ids": TOKENS[4:], "labels": labels[4:]}]
    report = nclab.measure(model, batch, min_count=1 if missing else None)
    loss = model(TOKENS, labels).loss
    assert report.last.loss == pytest.approx(float(loss.detach()), rel=1e-10)
    assert report.remarks == ()
    if not missing:
        expected = from_formula(model, labels, shift=shift)
        assert report.last.cdnv == pytest.approx(expected.cdnv, rel=1e-10)
        assert report.last.samples == expected.samples


def train(model: nn.Module) -> nclab.Monitor:
    """Train for one epoch under a monitor."""
    with nclab.Monitor(model) as monitor:
        for batch in monitor.watch([{"input_ids": TOKENS, "labels": TOKENS}]):
            model(**batch).loss.backward()
    return monitor


@pytest.mark.parametrize("shift", [True, False])
def test_the_monitor_follows_the_loss_of_the_model(shift: bool) -> None:
    model = Causal(shift=shift)
    monitor = train(model)
    assert monitor.last is not None
    measured, expected = monitor.last.report.last, from_formula(model, TOKENS, shift=shift)
    assert measured.loss == pytest.approx(expected.loss, rel=1e-10)
    assert measured.samples == expected.samples
    assert measured.nc3_self_duality == pytest.approx(expected.nc3_self_duality, rel=1e-10)


def test_labels_that_the_model_does_not_receive_are_not_shifted() -> None:
    """Shift the labels in the loop, outside the model."""
    model = Causal()
    report = nclab.measure(model, [(TOKENS[:, :-1], TOKENS[:, 1:])])
    assert report.last.loss == pytest.approx(
        from_formula(model, TOKENS, shift=True).loss, rel=1e-10
    )


def test_a_loss_that_differs_from_the_classifier_warns() -> None:
    model = Causal(bound=0.3)
    with pytest.warns(nclab.NclabWarning, match="the model's own loss is"):
        report = nclab.measure(model, [{"input_ids": TOKENS, "labels": TOKENS}])
    assert len(report.remarks) == 2
    assert "the loss of head with these labels" in report.remarks[1]
    with pytest.warns(nclab.NclabWarning, match="the model's own loss is"):
        train(model)


def test_a_loss_of_another_kind_does_not_warn() -> None:
    class Other(Causal):
        def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Output:
            out = super().forward(input_ids, labels)
            return Output(out.logits, None if out.loss is None else out.loss.square() + 40)

    report = nclab.measure(Other(), [{"input_ids": TOKENS, "labels": TOKENS}])
    assert report.remarks == ()


def test_a_loss_divided_by_a_larger_batch_is_recognised() -> None:
    model = Causal()
    out = model(TOKENS, TOKENS)
    assert out.loss is not None
    count = TOKENS[:, 1:].numel()
    items = 3 * count
    scaled = Output(out.logits, out.loss * count / items)
    result = model_loss(
        *(model, scaled, TOKENS),
        called_with={"labels": TOKENS, "num_items_in_batch": torch.tensor(items)},
        ignore_index=-100,
    )
    assert result.shifted
    assert result.loss == pytest.approx(float(out.loss.detach()), rel=1e-10)


def gpt(words: int = WORDS) -> Any:
    transformers = pytest.importorskip("transformers", reason="needs the extra transformers")
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": LENGTH}
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=words, bos_token_id=0, eos_token_id=0, **sizes)
    )
    return model.eval()


def llama() -> Any:
    transformers = pytest.importorskip("transformers", reason="needs the extra transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=WORDS,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=LENGTH,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("make", [gpt, llama])
def test_a_causal_language_model_of_transformers(make: Any) -> None:
    model = make()
    labels = TOKENS.clone()
    labels[:, -3:] = -100  # padding
    batch = {"input_ids": TOKENS, "attention_mask": torch.ones_like(TOKENS), "labels": labels}
    with torch.no_grad():
        out = model(**batch, output_hidden_states=True)
    report = nclab.measure(model, [batch])
    assert report.classifier == "lm_head"
    assert report.remarks == ()
    assert report.last.loss == pytest.approx(float(out.loss), rel=1e-5)
    features = out.hidden_states[-1][:, :-1].reshape(-1, 16)
    targets = labels[:, 1:].flatten()
    expected = nclab.measure_features(features, targets, model.lm_head.weight)
    assert report.last.nc1_trace_ratio == pytest.approx(expected.nc1_trace_ratio, rel=1e-4)
    assert report.last.samples == expected.samples == int((targets != -100).sum())
    assert report.last.accuracy == expected.accuracy


@pytest.mark.parametrize("kind", ["labels that repeat", "shifted labels"])
def test_pairs_for_a_causal_language_model(kind: str) -> None:
    """Use (inputs, labels) unshifted, unless the labels repeat the inputs."""
    model = gpt()
    with torch.no_grad():
        loss = float(model(input_ids=TOKENS, labels=TOKENS).loss)
    shifted = {"input_ids": TOKENS[:, :-1]}, TOKENS[:, 1:]
    batch = ({"input_ids": TOKENS}, TOKENS) if kind == "labels that repeat" else shifted
    assert nclab.measure(model, [batch]).last.loss == pytest.approx(loss, rel=1e-5)


def test_a_masked_language_model_is_not_shifted() -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=LENGTH,
    )
    model = transformers.BertForMaskedLM(config).eval()
    batch = {"input_ids": TOKENS, "labels": TOKENS}
    with torch.no_grad():
        loss = float(model(**batch).loss)
    report = nclab.measure(model, [batch])
    assert report.last.loss == pytest.approx(loss, rel=1e-5)
    assert report.last.samples == TOKENS.numel()
