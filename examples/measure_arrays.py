"""Measure saved or computed features: arrays first, then a stream of batches."""

from collections.abc import Iterator

import torch

import nclab

generator = torch.Generator().manual_seed(0)
means = torch.randn(10, 64, generator=generator)
labels = torch.arange(2000) % 10
features = means[labels] + 0.3 * torch.randn(2000, 64, generator=generator)

# Arrays: numpy or torch, any float type. The classifier is optional.
collapse = nclab.measure_features(features, labels, weight=means)
print(collapse)
print("closest classes:", collapse.max_inter_pair)
print("least alike class:", int(collapse.intra_cosine.argmin()))

# 95 % intervals, shuffled labels as a baseline, and the more expensive metrics.
careful = nclab.measure_features(
    features, labels, weight=means, intervals=True, shuffled_labels=True, metrics="all"
)
print(careful)
print(careful.verdict)


# A stream: anything that yields (features, labels).
def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for rows in torch.arange(2000).split(128):
        yield features[rows], labels[rows]


streamed = nclab.measure_features(batches(), weight=means)
assert streamed.cdnv is not None
assert collapse.cdnv is not None
print("relative difference of the stream:", abs(streamed.cdnv / collapse.cdnv - 1))

# Bad input raises an error of one line.
try:
    nclab.measure_features(features, labels + 1, num_classes=10)
except nclab.NclabError as error:
    print("refused:", error)
