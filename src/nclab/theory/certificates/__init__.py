"""Certificates: bounds on neural collapse that a network's loss and norms guarantee."""

from nclab.theory.certificates.certificate import Certificate
from nclab.theory.certificates.certification import certify
from nclab.theory.certificates.count_aware import CountAwareBounds, count_aware_bounds
from nclab.theory.certificates.norms_and_loss import Bound
from nclab.theory.certificates.regularised import regularised_optimum
from nclab.theory.certificates.theorem_constants import asymptotic_constants, thesis_bounds

__all__ = [
    "Bound",
    "Certificate",
    "CountAwareBounds",
    "asymptotic_constants",
    "certify",
    "count_aware_bounds",
    "regularised_optimum",
    "thesis_bounds",
]
