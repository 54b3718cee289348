"""Monitor collapse in a Lightning trainer with one callback."""

import logging
import warnings

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from nclab.monitor.lightning import CollapseCallback

warnings.filterwarnings("ignore", ".*does not have many workers")
warnings.filterwarnings("ignore", ".*LeafSpec.*is deprecated")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

torch.manual_seed(0)
torch.set_num_threads(1)
labels = torch.arange(600) % 4
inputs = torch.randn(4, 20)[labels] + 0.7 * torch.randn(600, 20)  # four clouds
loader = DataLoader(TensorDataset(inputs, labels), batch_size=100, shuffle=True)


class Classifier(pl.LightningModule):
    """Ordinary Lightning module."""

    def __init__(self) -> None:
        super().__init__()
        hidden = [nn.Linear(20, 64), nn.ReLU(), nn.BatchNorm1d(64)]
        self.net = nn.Sequential(*hidden, nn.Linear(64, 4))

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.net(inputs)
        return logits

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        inputs, labels = batch
        return nn.functional.cross_entropy(self(inputs), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, weight_decay=3e-3)


collapse = CollapseCallback(every=5)  # the line to add
trainer = pl.Trainer(
    max_epochs=20,
    accelerator="cpu",
    callbacks=[collapse],  # where to add it
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Classifier(), loader)

for epoch, value in zip(*collapse.monitor.history.series("nc1_trace_ratio"), strict=True):
    print(f"epoch {epoch:3.0f}   tr Σ_W / tr Σ_B = {value:.4f}")
for alarm in collapse.monitor.alarms:
    print("alarm:", alarm)
print("for early stopping and checkpoints:", *list(trainer.callback_metrics)[:3], "...")
