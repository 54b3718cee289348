"""Tests of the monitor on language models: sampled rows, callbacks, padding."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import nclab

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}
WORDS, LENGTH = 12, 10


class Reader(nn.Module):
    """A language model whose classifier is the embedding, used without a module."""

    def __init__(self, words: int = WORDS) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.emb, self.norm = nn.Embedding(words, 6), nn.LayerNorm(6)

    def forward(self, tokens: Tensor) -> Tensor:
        return functional.linear(self.norm(self.emb(tokens).tanh()), self.emb.weight)


def tokens(rows: int, words: int = WORDS) -> Tensor:
    """Return random tokens, small numbers more often."""
    generator = torch.Generator().manual_seed(1)
    return (torch.rand(rows, LENGTH, generator=generator).square() * words).long()


def trained(model: nn.Module, loader: list[Tensor], **options: Any) -> nclab.Monitor:
    """Train for an epoch at learning rate 0 under a monitor."""
    with nclab.Monitor(model, labels="next", **options) as monitor:
        for x in monitor.watch(loader):
            z = model(x)[:, :-1]
            functional.cross_entropy(z.flatten(0, 1), x[:, 1:].flatten()).backward()
    return monitor


@pytest.mark.parametrize("words", [WORDS, 300])
def test_sampled_rows_are_rows_of_the_batch(words: int) -> None:
    loader = list(tokens(800, words).split(10))
    model = Reader(words)
    state = torch.get_rng_state()
    full, some, again = (
        trained(model, loader, **options).last for options in ({}, {"rows": 30}, {"rows": 30})
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert full is not None
    assert some is not None
    assert again is not None
    assert full.report.last.samples == 800 * (LENGTH - 1)
    assert some.report.last.samples == 80 * 30
    assert some.report.last.values == again.report.last.values
    assert full.report.last.ignored == some.report.last.ignored == 800
    exact = nclab.measure(model, loader, labels="next", min_count=1)
    assert full.report.last.loss == pytest.approx(exact.last.loss, rel=1e-6)
    assert full.report.last.accuracy == exact.last.accuracy
    assert some.report.last.loss == pytest.approx(exact.last.loss, rel=0.1)
    assert some.report.last.loss != full.report.last.loss


def test_sampled_rows_of_pooled_samples() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )
    loader = [(torch.randn(20, 1, 8, 8), torch.arange(20) % 3) for _ in range(6)]
    with nclab.Monitor(model, rows=7, layers="all") as monitor:
        for x, _ in monitor.watch(loader):
            model(x)
    assert monitor.last is not None
    assert [layer.samples for layer in monitor.last.layers] == [42] * len(monitor.last.layers)


def test_a_batch_of_ignored_labels_does_not_end_training() -> None:
    model, loader = Reader(), [(tokens(4), torch.full((4, LENGTH), -100))]
    with nclab.Monitor(model) as monitor:
        for x, _ in monitor.watch(loader):
            model(x)
    assert monitor.last is not None
    assert monitor.last.layers == ()
    (why,) = monitor.last.report.skipped.values()
    assert "all 40 labels are the ignored -100" in why


def test_labels_outside_the_classifier_raise() -> None:
    monitor = nclab.Monitor(Reader())
    monitor.observe(tokens(4) + 7)
    monitor.model(tokens(4))
    with pytest.raises(nclab.DataError, match=r"labels in \[0, 12\) for the 12 outputs"):
        monitor.epoch_end()


def test_an_ignored_label_that_is_a_token() -> None:
    """Check padding with the token 0 and ignore_index=0."""
    model, x = Reader(), tokens(30)
    x[:, -3:] = 0
    used = int((x[:, 1:] != 0).sum())
    exact = nclab.measure(model, [x], labels="next", ignore_index=0, min_count=1)
    assert exact.last.samples == used
    last = trained(model, [x], ignore_index=0).last
    assert last is not None
    assert last.report.last.samples == used
    assert last.report.last.loss == pytest.approx(exact.last.loss, rel=1e-6)


def test_rare_tokens_while_training() -> None:
    loader = list(tokens(300).split(30))
    model = Reader()
    exact = nclab.measure(model, loader, labels="next", min_count=150)
    last = trained(model, loader, min_count=150).last
    assert last is not None
    measured = last.report.last
    assert 2 <= measured.num_classes < WORDS
    assert measured.classes == exact.last.classes
    assert measured.cdnv == pytest.approx(exact.last.cdnv, rel=1e-6)
    assert measured.nc1_trace_pinv is None
    assert exact.last.nc1_trace_pinv is not None
    assert any("fewer than 150 samples" in line for line in measured.warnings)


def padded(transformers: Any, kind: str) -> list[dict[str, Tensor]]:
    """Return sequences of different lengths, with labels as the usual collators make them."""
    rows = []
    for number, ids in enumerate(tokens(24)):
        mask = (torch.arange(LENGTH) < 4 + number % 6).long()
        ids = ids * mask
        labels = ids.masked_fill(mask == 0, -100)
        if kind == "masked":
            hidden = (torch.arange(LENGTH) + number) % 4 == 0
            labels = labels.masked_fill(~hidden, -100)
            ids = ids.masked_fill(hidden, WORDS - 1)
        rows.append({"input_ids": ids, "attention_mask": mask, "labels": labels})
    return rows


def language_model(transformers: Any, kind: str) -> Any:
    """Return a random model without dropout."""
    torch.manual_seed(0)
    if kind == "causal":
        config = transformers.GPT2Config(
            vocab_size=WORDS,
            n_embd=16,
            n_layer=1,
            n_head=2,
            n_positions=LENGTH,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
        return transformers.GPT2LMHeadModel(config)
    config = transformers.BertConfig(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return transformers.BertForMaskedLM(config)


@pytest.mark.parametrize("kind", ["causal", "masked"])
@pytest.mark.parametrize("exact", [None, "train"])
def test_a_padded_language_model_in_a_trainer(kind: str, exact: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra transformers")
    pytest.importorskip("accelerate", reason="needs the extra transformers")
    from nclab.monitor.transformers import CollapseCallback

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=1,
        per_device_train_batch_size=8,
        learning_rate=0.0,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        log_level="error",
    )
    rows, model = padded(transformers, kind), language_model(transformers, kind)
    callback = CollapseCallback(min_count=1, exact=exact)
    trainer = transformers.Trainer(model, arguments, train_dataset=rows)
    callback.attach(trainer)
    trainer.train()
    batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    labels = batch["labels"][:, 1:] if kind == "causal" else batch["labels"]
    with torch.no_grad():
        out = model.eval()(**batch)
    last = callback.monitor.last
    assert last is not None
    measured = last.report.last
    assert measured.samples == int((labels != -100).sum())
    # The loss over all tokens, since batches have different numbers of tokens.
    assert measured.loss == pytest.approx(float(out.loss), rel=1e-5)
    assert all("padded" not in remark for remark in last.report.remarks)


def test_padding_in_the_loss_warns() -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra transformers")
    model = language_model(transformers, "causal").eval()
    rows = padded(transformers, "causal")
    batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    batch["labels"] = batch["input_ids"].clone()
    with torch.no_grad():
        loss = float(model(**batch).loss)
    with pytest.warns(nclab.NclabWarning, match="counts padded tokens, .* label them -100"):
        report = nclab.measure(model, [batch], min_count=1)
    assert report.last.loss == pytest.approx(loss, rel=1e-5)
    assert report.last.samples == 24 * (LENGTH - 1)


@pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning")
@pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated")
def test_batches_of_tokens_in_lightning(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="needs the extra lightning")
    from lightning.pytorch import LightningModule, Trainer

    from nclab.monitor.lightning import CollapseCallback

    class Module(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Reader()

        def training_step(self, x: Tensor, index: int) -> Tensor:
            z = self.net(x)[:, :-1]
            return functional.cross_entropy(z.flatten(0, 1), x[:, 1:].flatten())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.0)

    callback = CollapseCallback(labels="next", min_count=1, rows=40)
    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    data: Any = tokens(40)
    loader: Any = torch.utils.data.DataLoader(data, batch_size=10)
    trainer.fit(Module(), loader)
    last = callback.monitor.last
    assert last is not None
    assert last.report.last.samples == 4 * 40


class Averaged(Reader):
    """A classifier of sequences by the mean of the logits of all tokens."""

    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens).mean(1)


def test_means_of_tokens_have_the_precision_of_the_tokens() -> None:
    """Check that rounding adds no noise outside the hyperplane of layer-normed means."""
    model, x = Averaged(words := 30), tokens(90, 30)
    y = torch.arange(90) % words
    with nclab.Monitor(model) as monitor:
        for part, labels in monitor.watch([(x[:50], y[:50]), (x[50:], y[50:])]):
            functional.cross_entropy(model(part), labels).backward()
    assert monitor.last is not None
    h = model.norm(model.emb(x).tanh()).detach().double().mean(1).numpy()
    means = np.stack([h[y.numpy() == number].mean(0) for number in range(words)])
    between = np.cov(means.T, bias=True)
    within = (h - means[y]).T @ (h - means[y]) / len(h)
    inverse = np.linalg.pinv(between, rcond=1e-9, hermitian=True)
    expected = np.trace(within @ inverse) / words
    assert np.linalg.matrix_rank(between, tol=1e-9, hermitian=True) == 5
    assert monitor.last.report.last.nc1_trace_pinv == pytest.approx(expected, rel=1e-4)
