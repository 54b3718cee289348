"""The unconstrained layer-peeled model: descent, gradient flow, certificates of the KKT
(Karush-Kuhn-Tucker) conditions, and the landscape of the loss."""

from nclab.ulpm.descent import Disturbance, descend, normalised_descent
from nclab.ulpm.flow import flow
from nclab.ulpm.landscape import classify, escape, minimise_on_sphere
from nclab.ulpm.problem import Problem
from nclab.ulpm.separation import approximate_kkt, certify, solve_separation
from nclab.ulpm.trajectory import Outcome, Sample, Trajectory

__all__ = [
    "Disturbance",
    "Outcome",
    "Problem",
    "Sample",
    "Trajectory",
    "approximate_kkt",
    "certify",
    "classify",
    "descend",
    "escape",
    "flow",
    "minimise_on_sphere",
    "normalised_descent",
    "solve_separation",
]
