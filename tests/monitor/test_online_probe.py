"""Tests of the probe: it learns, measures exactly, and does not change the training."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import nclab
from nclab.monitor.online_probe import OnlineProbe


def cloud(rows: int = 120) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(rows) % 3
    return 40 * torch.eye(6)[labels] + torch.randn(rows, 6, generator=generator), labels


def test_the_probe_learns_and_measures_its_features() -> None:
    features, labels = cloud()
    state = torch.get_rng_state()
    probe = OnlineProbe(3, name="embedding")
    for _ in range(30):
        for rows, classes in zip(features.split(40), labels.split(40), strict=True):
            probe.update(rows.requires_grad_(), classes)
        last = probe.compute()
        probe.reset()
    assert torch.equal(torch.get_rng_state(), state)
    assert features.grad is None
    assert last.accuracy == 1.0
    exact = nclab.measure_features(features.detach(), labels, weight=probe.weight, bias=probe.bias)
    for name in ("nc1_trace_pinv", "cdnv", "nc2_equiangularity_means", "nc3_self_duality"):
        assert last.values[name] == pytest.approx(exact.values[name], rel=1e-9), name
    assert "a probe sees each feature once" in last.notes["nc4_ncc_accuracy"]
    again = OnlineProbe(3)
    again.load_state_dict(probe.state_dict())
    again.watch(features.detach(), labels)
    assert again.compute().accuracy == 1.0


@pytest.mark.parametrize(
    ("features", "labels", "words"),
    [
        (torch.ones(2, 3, 4), torch.ones(2), r"got \(2, 3, 4\) and \(2,\)"),
        (torch.ones(2, 3), torch.ones(3), r"got \(2, 3\) and \(3,\)"),
    ],
)
def test_wrong_batches_raise_in_one_line(features: Any, labels: Any, words: str) -> None:
    with pytest.raises(nclab.NclabError, match=words):
        OnlineProbe(3).update(features, labels)


@pytest.mark.filterwarnings("ignore:.*does not have many workers:UserWarning")
@pytest.mark.filterwarnings("ignore:.*`isinstance\\(treespec, LeafSpec\\)` is deprecated")
def test_the_probe_in_lightning(tmp_path: Any) -> None:
    pytest.importorskip("lightning", reason="needs the extra lightning")
    from lightning.pytorch import LightningModule, Trainer

    from nclab.monitor.lightning import CollapseProbe

    class Encoder(LightningModule):
        """A module that learns without labels to keep the norm of its inputs."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.Linear(6, 4)

        def training_step(self, batch: Any, index: int) -> Any:
            embedding = self.net(batch["image"])
            loss = (embedding.norm(dim=1) - batch["image"].norm(dim=1)).square().mean()
            return {"loss": loss, "embedding": embedding}

        def validation_step(self, batch: Any, index: int) -> Any:
            return {"embedding": self.net(batch["image"])}

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 1e-4)

    features, labels = cloud()
    pairs = zip(features.split(40), labels.split(40), strict=True)
    batches: Any = [{"image": rows, "label": classes} for rows, classes in pairs]
    loader = DataLoader(batches, batch_size=None)

    def fit_parameters(*callbacks: Any) -> Any:
        module = Encoder()
        trainer = Trainer(
            max_epochs=3,
            callbacks=list(callbacks),
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tmp_path,
            accelerator="cpu",
        )
        trainer.fit(module, loader, loader)
        return module, trainer

    probe = CollapseProbe("backbone", num_classes=3, metrics=["accuracy", "cdnv"])
    module, trainer = fit_parameters(probe)
    alone, _ = fit_parameters()
    for parameter, other in zip(module.parameters(), alone.parameters(), strict=True):
        assert torch.equal(parameter, other)  # the probe does not change the training
    logged = {name for name in trainer.callback_metrics if name.startswith("nc/")}
    assert logged == {
        f"nc/{where}backbone/{name}" for where in ("", "val/") for name in ("accuracy", "cdnv")
    }
    assert probe.last is not None
    assert probe.last.samples == 120
    with pytest.raises(nclab.NclabError, match="Expected 'gone' in the result of training_step"):
        fit_parameters(CollapseProbe("other", input="gone", num_classes=3))
