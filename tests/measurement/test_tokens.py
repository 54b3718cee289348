"""Next tokens, padding and rare classes, compared with loops that share no code with nclab."""

import math
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nclab

EXAMPLES = Path(__file__).parents[2] / "examples"
TEXT = (
    "the quick brown fox jumps over the lazy dog and the dog is not amused at all by that\n"
    "a fox that jumps over dogs all day is a quick fox and the dogs are lazy dogs\n"
) * 3


def example(name: str) -> dict[str, Any]:
    """Return the definitions of an example, without running it."""
    return runpy.run_path(str(EXAMPLES / f"language_model_{name}.py"), run_name="example")


Row = tuple[list[float], list[float], int]
"""Features, logits and class of a token."""


def slow(rows: list[Row], min_count: int = 1) -> dict[str, float]:
    """Return all metrics by their definitions, number by number."""
    counts: dict[int, int] = {}
    for _, _, label in rows:
        counts[label] = counts.get(label, 0) + 1
    rows = [row for row in rows if counts[row[2]] >= min_count]
    kept = sorted({label for _, _, label in rows})
    dim = len(rows[0][0])
    means = {}
    for c in kept:
        members = [h for h, _, label in rows if label == c]
        means[c] = [sum(h[i] for h in members) / len(members) for i in range(dim)]
    centre = [sum(means[c][i] for c in kept) / len(kept) for i in range(dim)]

    def squared_distance(first: list[float], second: list[float]) -> float:
        return sum((a - b) ** 2 for a, b in zip(first, second, strict=True))

    within = sum(squared_distance(h, means[label]) for h, _, label in rows) / len(rows)
    between = sum(squared_distance(means[c], centre) for c in kept) / len(kept)
    loss = right = nearest = 0.0
    for h, z, label in rows:
        top = max(z)
        loss += top + math.log(sum(math.exp(logit - top) for logit in z)) - z[label]
        right += z.index(top) == label
        nearest += min(kept, key=lambda c: squared_distance(h, means[c])) == label
    return {
        "samples": len(rows),
        "num_classes": len(kept),
        "nc1_trace_ratio": within / between,
        "loss": loss / len(rows),
        "accuracy": right / len(rows),
        "nc4_ncc_accuracy": nearest / len(rows),
    }


def assert_alike(measured: nclab.Collapse, expected: dict[str, float], *but: str) -> None:
    for name, value in expected.items():
        if name not in but:
            assert getattr(measured, name) == pytest.approx(value, rel=1e-10), name


def token_rows(
    features: Tensor, logits: Tensor, labels: Tensor, pad: int | None = None
) -> list[Row]:
    """Return (B, T, ...) tensors as a list of tokens."""
    rows = []
    for h, z, y in zip(features.tolist(), logits.tolist(), labels.tolist(), strict=True):
        for row in zip(h, z, y, strict=True):
            if row[2] != pad:
                rows.append(row)
    return rows


@pytest.mark.parametrize("min_count", [1, 4])
def test_next_tokens_of_the_byte_pair_model(min_count: int) -> None:
    code = example("byte_pairs")
    torch.manual_seed(0)
    pairs = code["learn_pairs"](code["Counter"](code["split"](TEXT)), 290)
    tokens = torch.tensor(code["encode"](TEXT, pairs))
    assert len(pairs) == 34
    text = "".join(code["split"](TEXT))
    assert text == TEXT
    x = tokens[: len(tokens) // 20 * 20].view(-1, 20)
    model = code["LanguageModel"](290, width=16, depth=1).double()
    with torch.no_grad():
        h = model.norm(model.blocks(model.tokens(x) + model.places.weight[: x.shape[1]]))
        z = h @ model.tokens.weight.T
    expected = slow(token_rows(h[:, :-1], z[:, :-1], x[:, 1:]), min_count)
    loader = list(x.split(2))
    report = nclab.measure(model, loader, labels="next", min_count=min_count)
    assert report.classifier == "head"
    assert_alike(report.last, expected)
    pairs_of_tokens = [(part, part) for part in loader]
    again = nclab.measure(model, pairs_of_tokens, labels="next", min_count=min_count)
    assert again.last.values == report.last.values
    monitor = nclab.Monitor(model, labels="next", min_count=min_count)
    with monitor:
        for part in monitor.watch(loader):
            model(part)
    assert monitor.last is not None
    assert_alike(monitor.last.report.last, expected, "nc4_ncc_accuracy")
    arrays = nclab.measure_features(*(h[:, :-1], x[:, 1:], model.head.weight), min_count=min_count)
    assert_alike(arrays, expected)


def test_next_characters_of_padded_lines() -> None:
    code = example("characters")
    torch.manual_seed(0)
    known = "".join(sorted(set(TEXT)))
    loader = code["batches"](TEXT + "short\n", known + "\n", size=4)
    assert any((y == -1).any() for _, y in loader)
    model = code["CharacterModel"](len(known), width=12).double()
    rows = []
    with torch.no_grad():
        for x, y in loader:
            h = model.memory(model.embed(x))[0]
            rows += token_rows(h, model.head(h), y, pad=-1)
    expected = slow(rows)
    report = nclab.measure(model, loader, ignore_index=-1, min_count=1)
    assert_alike(report.last, expected)
    with nclab.Monitor(model, ignore_index=-1) as monitor:
        for x, _ in monitor.watch(loader):
            model(x)
    assert monitor.last is not None
    assert_alike(monitor.last.report.last, expected, "nc4_ncc_accuracy")
    assert monitor.last.report.last.ignored == report.last.ignored > 0


WORDS, LENGTH = 6, 9
WRONG: Any = "prior"


class Reader(nn.Module):
    """A model from tokens to logits."""

    def __init__(self, words: int = WORDS) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.emb, self.head = nn.Embedding(words, 5), nn.Linear(5, words)
        self.double()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        out: Tensor = self.head(self.emb(input_ids).tanh())
        return out


TOKENS = torch.randint(WORDS, (20, LENGTH), generator=torch.Generator().manual_seed(3))
MASK = (torch.arange(LENGTH) < torch.arange(20)[:, None] % 4 + 5).long()


def test_a_mask_leaves_padding_out_of_next_tokens() -> None:
    model = Reader()
    batch = {"input_ids": TOKENS * MASK, "attention_mask": MASK}
    real = MASK[:, 1:].bool()
    with torch.no_grad():
        h = model.emb(TOKENS * MASK).tanh()[:, :-1][real]
    expected = nclab.measure_features(h, TOKENS[:, 1:][real], model.head.weight, model.head.bias)
    report = nclab.measure(model, [batch], labels="next")
    assert report.last.loss == pytest.approx(expected.loss, rel=1e-10)
    assert report.last.cdnv == pytest.approx(expected.cdnv, rel=1e-10)
    with nclab.Monitor(model, labels="next") as monitor:
        for part in monitor.watch([batch]):
            model(**part)
    assert monitor.last is not None
    assert monitor.last.report.last.samples == expected.samples == int(real.sum())
    assert monitor.last.report.last.cdnv == pytest.approx(expected.cdnv, rel=1e-10)


def test_a_mask_leaves_padding_out_of_given_labels() -> None:
    """A tagger's padded tokens have the label 0, like other tokens."""
    model, tags = Reader(), (TOKENS + 1) % WORDS * MASK
    batch = {"input_ids": TOKENS, "attention_mask": MASK, "labels": tags}
    report = nclab.measure(model, [batch])
    assert report.last.samples == int(MASK.sum())
    with nclab.Monitor(model) as monitor:
        for part in monitor.watch([batch]):
            model(part["input_ids"])
    assert monitor.last is not None
    assert monitor.last.report.last.samples == int(MASK.sum())


@pytest.mark.parametrize("kind", [torch.uint8, torch.int16, torch.int32, torch.uint16])
def test_labels_of_small_integer_types(kind: torch.dtype) -> None:
    model = Reader()
    expected = nclab.measure(model, [(TOKENS, TOKENS)], labels="next").last
    measured = nclab.measure(model, [(TOKENS, TOKENS.to(kind))], labels="next").last
    assert measured.values == expected.values
    with nclab.Monitor(model, labels="next") as monitor:
        for x, _ in monitor.watch([(TOKENS, TOKENS.to(kind))]):
            model(x)
    assert monitor.last is not None
    assert monitor.last.report.last.loss == pytest.approx(expected.loss, rel=1e-10)


class NanoGPT(Reader):
    """A model that returns the logits of all tokens only if it gets targets."""

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> Any:
        h = self.emb(idx).tanh()
        if targets is None:
            return self.head(h[:, [-1]]), None
        logits = self.head(h)
        return logits, functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=-1
        )


def test_a_model_that_returns_all_logits_only_with_targets() -> None:
    model, (x, y) = NanoGPT(), (TOKENS[:, :-1], TOKENS[:, 1:])
    loss = float(model(x, y)[1].detach())
    report = nclab.measure(model, [(x, y)], ignore_index=-1)
    assert report.last.loss == pytest.approx(loss, rel=1e-10)
    assert report.remarks == ()
    with nclab.Monitor(model, ignore_index=-1) as monitor:
        for a, b in monitor.watch([(x, y)]):
            model(a, b)[1].backward()
    assert monitor.last is not None
    assert monitor.last.report.last.loss == pytest.approx(loss, rel=1e-10)


@pytest.mark.parametrize("first", [True, False], ids=["logits (B, C, T)", "logits (B, T, C)"])
def test_logits_in_the_layout_of_the_loss(first: bool) -> None:
    class OtherLayout(Reader):
        def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
            logits = super().forward(x)
            return logits.transpose(1, 2) if first else logits

    measured = nclab.measure(OtherLayout(), [TOKENS], labels="next").last
    assert measured.values == nclab.measure(Reader(), [TOKENS], labels="next").last.values


def test_a_recurrent_model_of_packed_sequences() -> None:
    class Packed(Reader):
        def __init__(self) -> None:
            super().__init__()
            self.memory = nn.LSTM(5, 5, batch_first=True).double()

        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:  # type: ignore[override]
            packed = nn.utils.rnn.pack_padded_sequence(
                self.emb(x), lengths, batch_first=True, enforce_sorted=False
            )
            h, _ = nn.utils.rnn.pad_packed_sequence(self.memory(packed)[0], batch_first=True)
            out: Tensor = self.head(h)
            return out

    model, lengths = Packed(), MASK.sum(1)
    most = int(lengths.max())
    y = ((TOKENS + 1) % WORDS).masked_fill(MASK == 0, -100)[:, :most]
    report = nclab.measure(model, [(TOKENS[:, :most], lengths, y)])
    assert report.last.samples == int(MASK.sum())
    loss = functional.cross_entropy(model(TOKENS[:, :most], lengths).transpose(1, 2), y)
    assert report.last.loss == pytest.approx(float(loss.detach()), rel=1e-10)


@pytest.mark.parametrize("time_first", [True, False], ids=["(T, B)", "(B, T)"])
def test_next_tokens_of_a_model_with_time_first(time_first: bool) -> None:
    class Recurrent(Reader):
        def __init__(self) -> None:
            super().__init__()
            self.memory = nn.LSTM(5, 5).double()

        def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
            h = self.emb(x if time_first else x.T)
            h = self.memory(h)[0]
            out: Tensor = self.head(h if time_first else h.transpose(0, 1))
            return out

    model = Recurrent()
    x = TOKENS.T.contiguous() if time_first else TOKENS
    logits = model(x).transpose(0, 1) if time_first else model(x)
    loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), TOKENS[:, 1:].flatten())
    report = nclab.measure(model, [x], labels="next")
    assert report.last.loss == pytest.approx(float(loss.detach()), rel=1e-10)
    assert report.last.samples == 20 * (LENGTH - 1)
    with nclab.Monitor(model, labels="next") as monitor:
        for part in monitor.watch([x, x]):
            model(part)
    assert monitor.last is not None
    assert monitor.last.report.last.loss == pytest.approx(float(loss.detach()), rel=1e-10)
    pair = (x[:-1], x[1:]) if time_first else (x[:, :-1], x[:, 1:])
    with pytest.raises(nclab.DataError, match="already shifted to the next token"):
        nclab.measure(model, [pair], labels="next")
    with pytest.raises(nclab.DataError, match="different numbers of sequences and tokens"):
        nclab.measure(model, [x[:LENGTH, :LENGTH]], labels="next")


def rare_data() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0] * 30 + [1] * 20 + [2] * 10 + [3] * 2 + [4] + [6] * 3)
    features = torch.randn(len(labels), 4, generator=generator).double() + labels[:, None]
    weight = torch.randn(8, 4, generator=generator).double()
    order = torch.randperm(len(labels), generator=generator)
    return features[order], labels[order], weight


@pytest.mark.parametrize("source", ["arrays", "batches", "second reading", "model", "shards"])
def test_rare_classes_have_no_influence(source: str, tmp_path: Path) -> None:
    x, y, weight = rare_data()
    stay = torch.isin(y, torch.tensor([0, 1, 2, 6]))
    expected = nclab.measure_features(x[stay], y[stay], weight, min_count=1, metrics="all")
    options: dict[str, Any] = {"min_count": 3, "metrics": "all"}
    batches = list(zip(x.split(7), y.split(7), strict=True))
    if source == "model":
        model = nn.Linear(4, 8, bias=False).double()
        model.weight.data = weight
        measured = nclab.measure(model, batches, **options).last
    elif source == "shards":
        from safetensors.torch import save_file

        for number, (rows, labels) in enumerate(batches):
            save_file({"features": rows, "labels": labels}, tmp_path / f"{number}.safetensors")
        measured = nclab.measure_shards(tmp_path, weight, min_count=3, workers=0)
    elif source == "arrays":
        measured = nclab.measure_features(x, y, weight, **options)
    else:
        cache: dict[str, Any] = {} if source == "batches" else {"cache_bytes": 0}
        measured = nclab.measure_features(batches, None, weight, **options, **cache)
    assert measured.nc1_trace_pinv is not None
    for name, value in measured.values.items():
        known = expected.values[name]
        assert (value is None) == (known is None), name
        assert known is None or value == pytest.approx(known, rel=1e-10, abs=1e-12), name
    assert measured.classes == (0, 1, 2, 6)
    assert measured.left_out == (3, 4)
    assert measured.ignored == 0
    warning = [line for line in measured.warnings if line.startswith("Left out")]
    assert warning[0] == "Left out 2 classes without samples: 5, 7."
    assert warning[1].startswith("Left out 2 classes with fewer than 3 samples (3 samples")
    assert len(warning) == 2


def test_without_a_second_pass_rare_classes_drop_the_scatter() -> None:
    x, y, weight = rare_data()
    measured = nclab.measure_features(x, y, weight, min_count=3, second_pass=False)
    assert measured.nc1_trace_pinv is None
    assert measured.notes["nc1_trace_pinv"].startswith("min_count leaves classes out")
    assert measured.nc1_trace_ratio is not None


def test_rare_classes_have_names_and_test_data_follow() -> None:
    x, y, weight = rare_data()
    names = list("abcdefgh")
    train = nclab.measure_features(x, y, weight, min_count=3, class_names=names)
    assert "(3 samples, mean loss" in train.warnings[1]
    assert train.warnings[1].endswith(": d, e.")
    assert train.warnings[0].endswith(": f, h.")
    test = nclab.measure_features(x, y, weight, reference=train, min_count=3, class_names=names)
    assert test.classes == train.classes
    assert test.reference_ncc_accuracy == train.nc4_ncc_accuracy


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda m: nclab.measure(m, [TOKENS], labels=WRONG),
            "labels='auto' or 'given' or 'next'",
        ),
        (lambda m: nclab.measure(m, [TOKENS]), r"batches of \(inputs, labels\)"),
        (
            lambda m: nclab.measure(m, [(TOKENS[:, :-1], TOKENS[:, 1:])], labels="next"),
            "already shifted to the next token",
        ),
        (
            lambda m: nclab.measure(m, [(TOKENS, TOKENS[:, 0])], labels="next"),
            r"one for each token, .*got shape \(20,\)",
        ),
        (
            lambda m: nclab.measure(m, [(TOKENS, TOKENS[:, 1:])]),
            "9 tokens need 9 labels, got 8 .for next tokens pass labels='next'",
        ),
        (
            lambda m: nclab.measure(m, [(TOKENS, TOKENS[:, 3:])]),
            "9 tokens need 9 labels, got 6.",
        ),
        (
            lambda m: nclab.measure(m, [(TOKENS, torch.full_like(TOKENS, -100))]),
            "all 180 labels are the ignored -100",
        ),
        (
            lambda m: nclab.measure(m, [(TOKENS, TOKENS + 1)]),
            r"labels in \[0, 6\) for the 6 outputs of head, got 6",
        ),
        (
            lambda m: nclab.measure(m, [TOKENS], labels="next", ignore_index=None),
            "an integer ignore_index, got None: the last token",
        ),
        (lambda m: nclab.measure(m, [TOKENS], labels="next", min_count=0), "min_count=1 or more"),
        (
            lambda m: nclab.measure(m, [TOKENS], labels="next", min_count=9999),
            "2 classes with min_count=9999 samples, the largest class has",
        ),
        (
            lambda m: nclab.measure(m, [TOKENS], labels="next", min_count=2, intervals=True),
            "min_count without intervals, got intervals=10",
        ),
        (
            lambda m: nclab.measure_features(torch.ones(2, 3, 4), TOKENS[:2, :2]),
            r"hidden states \(B, T, d\) with labels \(B, T\), got shapes \(2, 3, 4\) and \(2, 2\)",
        ),
        (lambda m: nclab.Monitor(m, rows=0), "rows= 1 or more"),
        (lambda m: nclab.Monitor(m, labels=WRONG), "Expected labels="),
        (lambda m: nclab.Monitor(m, min_count=WRONG), "min_count=1 or more"),
    ],
)
def test_wrong_input_raises_in_one_line(call: Any, words: str) -> None:
    with pytest.raises(nclab.NclabError, match=words) as caught:
        call(Reader())
    assert "\n" not in str(caught.value)


def test_labels_that_repeat_the_tokens_give_a_warning() -> None:
    with pytest.warns(nclab.NclabWarning, match="pass labels='next', else labels='given'"):
        report = nclab.measure(Reader(), [(TOKENS, TOKENS)])
    assert "repeat the tokens" in report.remarks[0]
    assert nclab.measure(Reader(), [(TOKENS, TOKENS)], labels="given").remarks == ()
