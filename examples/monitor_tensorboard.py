"""Log every measurement to TensorBoard and read it back. W&B and MLflow work in the same way."""

import tempfile

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import nclab
from nclab.monitor import TensorBoardSink

torch.manual_seed(0)
torch.set_num_threads(1)
labels = torch.arange(600) % 4
inputs = torch.randn(4, 20)[labels] + 0.7 * torch.randn(600, 20)  # four clouds
loader = DataLoader(TensorDataset(inputs, labels), batch_size=100, shuffle=True)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.BatchNorm1d(64), nn.Linear(64, 4))
optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=3e-3)

with tempfile.TemporaryDirectory() as folder:
    with nclab.Monitor(model, every=2, sinks=TensorBoardSink(folder)) as monitor:
        for _epoch in range(10):
            for x, y in monitor.watch(loader):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimiser.step()

    written = EventAccumulator(folder)  # what `tensorboard --logdir` reads
    written.Reload()
    print(len(written.Tags()["scalars"]), "curves, among them nc/2/nc1_trace_ratio:")
    for point in written.Scalars("nc/2/nc1_trace_ratio"):
        print(f"  step {point.step:3}   {point.value:.4f}")
