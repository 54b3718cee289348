"""Accumulate two halves of the data separately and merge their class moments."""

import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import nclab
from nclab import metrics

generator = torch.Generator().manual_seed(0)
labels = torch.arange(600) % 6
features = torch.randn(6, 32, generator=generator)[labels] + torch.randn(
    600, 32, generator=generator
)

workers = []
for half in (slice(0, 250), slice(250, 600)):
    moments = nclab.ClassMoments(num_classes=6, dim=32, scatter=True)
    moments.update(features[half], labels[half])
    workers.append(moments)

with tempfile.TemporaryDirectory() as folder:  # moments travel as safetensors files
    save_file(workers[1].state_dict(), Path(folder) / "worker.safetensors")
    state = load_file(Path(folder) / "worker.safetensors")
    received = nclab.ClassMoments.from_state_dict(state)

workers[0].merge(received)
together = metrics.nc1_trace_pinv(workers[0])

whole = nclab.ClassMoments(num_classes=6, dim=32, scatter=True)
whole.update(features, labels)
print("merged:   ", together)
print("one shot: ", metrics.nc1_trace_pinv(whole))
assert abs(together / metrics.nc1_trace_pinv(whole) - 1) < 1e-10

# The second pass and the losses have their own streams.
second_pass = nclab.SecondPass(whole)
second_pass.update(features, labels)
print("nearest class centre is right:", metrics.nc4_ncc_accuracy(second_pass))
logits = nclab.LogitStatistics(num_classes=6)
logits.update(features @ whole.means.T.float(), labels)
print("margin:", metrics.margin(logits))
