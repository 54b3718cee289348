"""Tests of the callback in a real Trainer on tiny random models."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import nclab
from tests.monitor.loops import assert_alike, assert_same

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}
transformers = pytest.importorskip("transformers", reason="needs the extra transformers")
pytest.importorskip("accelerate", reason="needs the extra transformers")

from nclab.monitor.transformers import STATE_FILE, CollapseCallback  # noqa: E402

CLASSES = 3
LAST = "dropout"


def dataset(samples: int = 24) -> list[dict[str, Tensor]]:
    """Return random words whose first word determines the class, padded to one length."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for number in range(samples):
        words = torch.randint(10, 50, (6,), generator=generator)
        words[0] = number % CLASSES + 2
        mask = (torch.arange(6) < 3 + number % 4).long()
        rows.append(
            {
                "input_ids": words * mask,
                "attention_mask": mask,
                "labels": torch.tensor(number % CLASSES),
            }
        )
    return rows


def bert() -> Any:
    """Return a random BERT that classifies sentences."""
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=50,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=8,
            num_labels=CLASSES,
        )
    )


def trainer(folder: Path, *callbacks: Any, **options: Any) -> Any:
    """Return a trainer of a random BERT, for two epochs."""
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        **{
            "num_train_epochs": 2,
            "per_device_train_batch_size": 4,
            "learning_rate": 1e-3,
            "logging_steps": 2,
            "save_strategy": "no",
            "eval_strategy": "epoch",
            "report_to": [],
            "use_cpu": True,
            "disable_tqdm": True,
            "log_level": "error",
            **options,
        },
    )
    return transformers.Trainer(
        bert(),
        arguments,
        train_dataset=dataset(),
        eval_dataset=dataset(6),
        callbacks=list(callbacks),
    )


def weights(trained: Any) -> dict[str, Tensor]:
    """Return the model's state and the state of the random generator."""
    return {**trained.model.state_dict(), "random": torch.get_rng_state()}


def test_weights_are_unchanged_and_values_are_logged(tmp_path: Path) -> None:
    plain = trainer(tmp_path)
    plain.train()
    before = weights(plain)
    callback = CollapseCallback(preset="full")
    watched = trainer(tmp_path, callback)
    watched.train()
    assert_same(weights(watched), before)
    rows = callback.monitor.history.rows
    last_rows = [row for row in rows if row["layer"] == LAST]
    assert [(row["step"], row["epoch"], row["samples"]) for row in last_rows] == [
        (6, 1, 24),
        (12, 2, 24),
    ]
    assert len(rows) == 2 * 10
    name = f"nc/{LAST}/nc1_trace_ratio"
    logged = [entry for entry in watched.state.log_history if name in entry]
    assert [(entry["step"], entry["epoch"]) for entry in logged] == [(6, 1.0), (12, 2.0)]
    assert [entry[name] for entry in logged] == [row["nc1_trace_ratio"] for row in last_rows]
    others = [entry for entry in watched.state.log_history if name not in entry]
    assert [entry.keys() for entry in others] == [entry.keys() for entry in plain.state.log_history]
    assert not any(module._forward_pre_hooks for module in watched.model.modules())


def test_an_attached_callback_logs_through_the_trainer(tmp_path: Path) -> None:
    logged: list[dict[str, float]] = []

    class Logger(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        """A callback that runs before the monitor, as the loggers of report_to do."""

        def on_log(self, *_: Any, logs: dict[str, float], **__: Any) -> None:
            logged.append(dict(logs))

    options: dict[str, Any] = {
        "gradient_accumulation_steps": 2,
        "logging_strategy": "epoch",
        "eval_strategy": "no",
    }
    plain = trainer(tmp_path, **options)
    plain.train()
    before = weights(plain)
    watched = trainer(tmp_path, Logger(), **options)
    callback = CollapseCallback("log steps", preset="economy").attach(watched)
    watched.train()
    assert_same(weights(watched), before)
    rows = callback.monitor.history.rows
    assert [(row["step"], row["samples"]) for row in rows] == [(step, 8) for step in range(1, 7)]
    name = f"nc/{LAST}/cdnv"
    assert [logs[name] for logs in logged if name in logs] == [row["cdnv"] for row in rows]
    assert sum("loss" in logs for logs in logged) == 2  # the trainer's flag is unchanged
    steps = [entry["step"] for entry in watched.state.log_history if name in entry]
    assert steps == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("step", [6, 9], ids=["after an epoch", "in the middle of one"])
def test_a_resumed_training_continues(step: int, tmp_path: Path) -> None:
    options: dict[str, Any] = {"save_strategy": "steps", "save_steps": 3, "eval_strategy": "no"}
    uninterrupted = CollapseCallback()
    first = trainer(tmp_path, uninterrupted, **options)
    first.train()
    folder = tmp_path / f"checkpoint-{step}"
    assert (folder / STATE_FILE).is_file()
    again = CollapseCallback()
    second = trainer(tmp_path, again, **options)
    second.train(resume_from_checkpoint=str(folder))
    assert_alike(again.monitor.history.rows, uninterrupted.monitor.history.rows)
    for name, value in first.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], value), name


def test_options_that_hooks_cannot_follow_raise(tmp_path: Path) -> None:
    with pytest.raises(nclab.NclabError, match=r"without label_smoothing_factor, got 0\.1"):
        trainer(tmp_path, CollapseCallback(), label_smoothing_factor=0.1).train()
    kept = trainer(tmp_path, CollapseCallback())
    kept.compute_loss_func = lambda outputs, labels, **_: outputs.logits.sum()
    with pytest.raises(
        nclab.DataError, match="labels among the inputs of the model, got input_ids"
    ):
        kept.train()
    with pytest.raises(nclab.NclabError, match="Expected preset="):
        CollapseCallback(preset="huge")


def test_train_and_evaluation_are_two_curves(tmp_path: Path) -> None:
    plain = trainer(tmp_path)
    plain.train()
    before = weights(plain)
    callback = CollapseCallback(exact=("train", "eval"))
    watched = trainer(tmp_path, eval_strategy="epoch")
    callback.attach(watched)
    watched.train()
    assert_same(weights(watched), before)
    history = callback.monitor.history
    train, other = (history.series("nc4_ncc_accuracy", split=name) for name in ("train", "eval"))
    assert train[0] == other[0] == [1.0, 2.0]
    model = watched.model.eval()
    means: list[Tensor] = []
    accuracies = []
    with torch.no_grad():
        for rows in (dataset(), dataset(6)):
            batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
            labels = batch.pop("labels")
            pooled = model.bert(**batch).pooler_output.double()
            if not means:
                means = [pooled[labels == c].mean(0) for c in range(CLASSES)]
            near = torch.cdist(pooled, torch.stack(means)).argmin(1)
            accuracies.append(float((near == labels).double().mean()))
    assert history.series("reference_ncc_accuracy", split="eval")[1][-1] == accuracies[1]
    assert train[1][-1] == accuracies[0]
    names = [f"nc/{LAST}/cdnv", f"nc/eval/{LAST}/cdnv"]
    logged = [entry for entry in watched.state.log_history if names[0] in entry]
    assert [entry["epoch"] for entry in logged] == [1.0, 2.0]
    assert all(names[1] in entry for entry in logged)


def test_exact_measurements_need_no_labels_in_the_model(tmp_path: Path) -> None:
    callback = CollapseCallback(exact="train")
    trainer(tmp_path, callback, label_smoothing_factor=0.1).train()
    assert callback.monitor.history.series("cdnv")[0] == [1.0, 2.0]


def test_a_causal_language_model_uses_the_labels_of_the_next_tokens(
    tmp_path: Path,
) -> None:
    words, length = 5, 8
    torch.manual_seed(0)
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": length}
    dropouts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    config = transformers.GPT2Config(
        vocab_size=words, bos_token_id=0, eos_token_id=0, **sizes, **dropouts
    )
    tokens = torch.randint(words, (12, length), generator=torch.Generator().manual_seed(1))
    rows = [{"input_ids": row, "labels": row.clone()} for row in tokens]
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=1,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=3,
        learning_rate=0.0,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        log_level="error",
    )
    model = transformers.GPT2LMHeadModel(config)
    callback = CollapseCallback()
    watched = transformers.Trainer(model, arguments, train_dataset=rows, callbacks=[callback])
    watched.train()
    with torch.no_grad():
        loss = float(model.eval()(input_ids=tokens, labels=tokens).loss)
    event = callback.monitor.last
    assert event is not None
    assert event.report.last.loss == pytest.approx(loss, rel=1e-5)
    assert event.report.last.samples == 12 * (length - 1)
    assert event.report.remarks == event.report.remarks[-1:]


def test_missing_evaluation_data_raise_before_training(tmp_path: Path) -> None:
    with pytest.raises(nclab.NclabError, match=r"attach\(trainer\), or pass exact= a loader"):
        trainer(tmp_path, CollapseCallback(exact="eval")).train()


def test_the_token_that_a_sequence_classifier_selects(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = transformers.GPT2ForSequenceClassification(
        transformers.GPT2Config(
            vocab_size=50,
            n_positions=8,
            n_embd=16,
            n_layer=1,
            n_head=2,
            bos_token_id=1,
            eos_token_id=1,
            pad_token_id=0,
            num_labels=CLASSES,
        )
    )
    rows = dataset()
    batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    halves = [
        {name: part[index] for name, part in batch.items()} for index in (slice(9), slice(9, 24))
    ]
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    model.eval()
    with torch.no_grad():
        hidden = model.transformer(**inputs).last_hidden_state
        features = hidden[torch.arange(24), batch["attention_mask"].sum(1) - 1]
        expected = nclab.measure_features(features, batch["labels"], model.score.weight)
        loss = float(model(**batch).loss)
    for classifier in ("auto", "score"):
        report = nclab.measure(model, halves, classifier=classifier)
        assert report.last.loss == pytest.approx(loss, rel=1e-5)
        assert report.last.nc1_trace_pinv == pytest.approx(expected.nc1_trace_pinv, rel=1e-4)
        assert report.last.accuracy == expected.accuracy
