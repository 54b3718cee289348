"""Monitor every layer in a plain PyTorch loop: one object and one changed line."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import nclab

torch.manual_seed(0)
torch.set_num_threads(1)  # small matrices do not profit from threads
labels = torch.arange(1500) % 4
inputs = torch.randn(4, 20)[labels] + 0.7 * torch.randn(1500, 20)  # four clouds
loader = DataLoader(TensorDataset(inputs, labels), batch_size=100, shuffle=True)


def block(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.BatchNorm1d(64))


model = nn.Sequential(block(20), block(64), block(64), nn.Linear(64, 4))
optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=3e-3)

with nclab.Monitor(model, every=5, preset="full") as monitor:
    for _epoch in range(25):
        for x, y in monitor.watch(loader):  # was: for x, y in loader
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimiser.step()
    report = monitor.measure(loader)  # exact, of the trained weights

print("running estimates of the last layer, while it was trained:")
for epoch, value in zip(*monitor.history.series("nc1_trace_ratio"), strict=True):
    print(f"  epoch {epoch:4.0f}   tr Σ_W / tr Σ_B = {value:.4f}")
for alarm in monitor.alarms:
    print("alarm:", alarm)
print(report)
