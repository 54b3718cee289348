"""Theory of neural collapse: certificates, targets, worst cases, checks of a paper's statements."""

from nclab.theory import certificates, layer_peeled, statements, targets, worst_case

__all__ = ["certificates", "layer_peeled", "statements", "targets", "worst_case"]
