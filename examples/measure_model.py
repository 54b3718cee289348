"""Measure every layer of a network in one forward pass per batch."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import nclab

torch.manual_seed(0)
torch.set_num_threads(1)  # small matrices do not profit from threads
inputs = torch.randn(1500, 20)
labels = (inputs[:, :3] > 0).long() @ torch.tensor([1, 2, 4])  # eight cones
loader = DataLoader(TensorDataset(inputs, labels), batch_size=100, shuffle=True)


def block(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 96), nn.ReLU(), nn.BatchNorm1d(96))


network = nn.Sequential(block(20), block(96), block(96), block(96), nn.Linear(96, 8))
optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=3e-3)
for _epoch in range(25):
    for x, y in loader:
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimiser.step()

report = nclab.measure(network, loader, layers="all")
print(report)
print("effective depth:", report.effective_depth(epsilon=0.01))
print("last layer:", report.last.layer, "read by", report.classifier)
rows = report.to_dicts()  # pandas.DataFrame(rows), if you like
print("columns:", ", ".join(list(rows[0])[:8]), "...")
