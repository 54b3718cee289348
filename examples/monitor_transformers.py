"""Monitor collapse in a Hugging Face Trainer with one callback. The model is tiny and random."""

import os
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is downloaded here

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    logging,
)

from nclab.monitor.transformers import CollapseCallback

logging.set_verbosity_error()
torch.manual_seed(0)
torch.set_num_threads(1)
CLASSES = 3


def sentence(number: int) -> dict[str, torch.Tensor]:
    """Return random words; the first word determines the class."""
    words = torch.randint(10, 50, (8,))
    words[0] = 2 + number % CLASSES
    return {"input_ids": words, "labels": torch.tensor(number % CLASSES)}


config = BertConfig(
    vocab_size=50,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
)
config.num_labels = CLASSES
collapse = CollapseCallback(every=1)  # the line to add
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=TrainingArguments(
            output_dir=folder,
            num_train_epochs=4,
            per_device_train_batch_size=16,
            learning_rate=3e-3,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=[sentence(number) for number in range(96)],
        callbacks=[collapse],  # where to add it
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()

name = "nc/dropout/nc1_trace_ratio"
for entry in trainer.state.log_history:
    if name in entry:
        print(f"epoch {entry['epoch']:.0f}   {name} = {entry[name]:.4f}")
for alarm in collapse.monitor.alarms:
    print("alarm:", alarm)
