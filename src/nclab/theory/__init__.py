"""Theory of neural collapse: certificates, targets, worst cases, and tools for statements."""

from nclab.theory import certificates, layer_peeled, statements, targets, worst_case

__all__ = ["certificates", "layer_peeled", "statements", "targets", "worst_case"]
