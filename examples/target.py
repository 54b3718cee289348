"""Compare a long-tailed network with its own optimum and with what its loss guarantees."""

import torch

import nclab

# Where a network with such counts and weight decay should end: not at the simplex ETF.
counts = [200, 60, 20, 20, 6, 6]
target = nclab.target(counts=counts, weight_decay=2e-3)
print(target)

# Train one: a small MLP on clusters, by plain gradient descent with weight decay.
torch.manual_seed(0)
labels = torch.repeat_interleave(torch.arange(6), torch.tensor(counts))
inputs = 3 * torch.randn(6, 10)[labels] + torch.randn(len(labels), 10)
body = torch.nn.Sequential(torch.nn.Linear(10, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
head = torch.nn.Linear(8, 6, bias=False)
parameters = [*body.parameters(), *head.parameters()]
optimiser = torch.optim.SGD(parameters, lr=0.02, momentum=0.9, weight_decay=1e-3)
for _ in range(1500):
    optimiser.zero_grad()
    torch.nn.functional.cross_entropy(head(body(inputs)), labels).backward()
    optimiser.step()

collapse = nclab.measure_features(body(inputs).detach(), labels, weight=head.weight.detach())
print(collapse.distance_to(collapse.target()))  # the optimum for the norms that it has
print(collapse.distance_to(collapse.target(weight_decay=1e-3)))  # the one weight decay leads to
print(collapse.certificate())  # the last row holds for the loss that was trained
