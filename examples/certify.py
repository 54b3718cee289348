"""Compute what a network's loss guarantees about its features, and compare with measurements."""

import torch

import nclab
from nclab.theory.certificates.regularised import regularised_optimum

# From three numbers alone: the norms and the loss.
certificate = nclab.certify(num_classes=10, alpha=2.2, beta=2.3, loss=0.0321)
print("intra-class cosine of every class at least", certificate.intra_lower.value)
print("inter-class cosine of every pair at most", certificate.inter_upper.value)

# For a measured layer: a bound for every class from the loss of this class.
generator = torch.Generator().manual_seed(0)
etf = nclab.metrics.simplex_etf(4, 8)
labels = torch.arange(400) % 4
features = 2.5 * etf[labels] + 0.05 * torch.randn(400, 8, generator=generator)
collapse = nclab.measure_features(features, labels, weight=2.5 * etf)
promised = collapse.certificate().class_intra_lower
assert promised is not None
for number, (least, found) in enumerate(zip(promised, collapse.intra_cosine, strict=True)):
    print(f"class {number}: guaranteed {least:.5f}, measured {float(found):.5f}")

# The norms to which weight decay leads.
optimum = regularised_optimum(num_classes=10, weight_decay=5e-4)
print(f"at the optimum alpha = {optimum.alpha:.3f}, beta = {optimum.beta:.3f}")
