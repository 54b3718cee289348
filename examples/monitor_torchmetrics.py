"""Measure the features of a validation loop with torchmetrics, batch by batch, exactly."""

import torch
from torch import nn
from torchmetrics import MetricCollection

from nclab.monitor.torchmetrics import NeuralCollapse

torch.manual_seed(0)
torch.set_num_threads(1)
labels = torch.arange(600) % 4
inputs = torch.randn(4, 20)[labels] + 0.7 * torch.randn(600, 20)  # four clouds
body, head = nn.Sequential(nn.Linear(20, 64), nn.ReLU()), nn.Linear(64, 4)
optimiser = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1, momentum=0.9)

metrics = MetricCollection({"last": NeuralCollapse(num_classes=4, dim=64, layer="last")})
for epoch in range(1, 21):
    optimiser.zero_grad()
    nn.functional.cross_entropy(head(body(inputs)), labels).backward()
    optimiser.step()
    if epoch % 5:
        continue
    with torch.no_grad():
        for x, y in zip(inputs.split(100), labels.split(100), strict=True):
            metrics.update(body(x), y)
    values = metrics.compute()  # under DDP, that of all processes
    metrics.reset()
    shown = ("nc/last/min_intra", "nc/last/nc1_trace_ratio")
    print(f"epoch {epoch:2}  ", "  ".join(f"{name} {float(values[name]):.4f}" for name in shown))
