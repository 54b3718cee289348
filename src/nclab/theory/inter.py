"""Upper bound on the inter-class cosine: the worst pair of class means, proved by duality."""

import math

from nclab.theory.budget import LossBudget
from nclab.theory.inter_sectors import MeanCosineProof, Sectors

INFLATIONS = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 2.0, 8.0, 32.0)
"""Extra excess loss, relative, given to the worst case so that its dual proves the given loss:
little against rounding, much where a bias has to be covered or the excess is below rounding."""

SMALLEST = 1e-290
"""Below this best loss the search would divide by numbers out of range."""


def mean_cosine_upper(budget: LossBudget) -> MeanCosineProof | None:
    r"""The largest cosine of two class means that the loss allows, proved by duality.

    $$v^* = \max\cos(\tilde h_1,\tilde h_2)\ \text{s.t. loss} \le m+\varepsilon,\qquad
    L \ge f(Z)-\langle G,Z\rangle-(\mu_P+\mu_Q)\,C\alpha\beta$$

    Source: pan2023, Thm 2.3.1
    Range: [-1/(C-1), 0], or None where no cosine <= 0 can be proved.

    >>> from nclab.theory.budget import loss_budget
    >>> proof = mean_cosine_upper(loss_budget(10, 2.0, 2.5, 0.0342017 + 1e-5))
    >>> round(proof.cosine, 3)
    -0.073
    """
    if budget.optimal_loss < SMALLEST:
        return None
    sectors = Sectors(budget.num_classes, budget.product)
    for start in sectors.starts(budget.excess / budget.optimal_loss):
        point = start
        for inflation in INFLATIONS:
            excess = budget.excess * (1 + inflation)
            point = sectors.worst(point, excess)
            cosine = sectors.cosine(point)
            if not cosine <= 0:
                if inflation == INFLATIONS[0] and sectors.reachable(point, excess):
                    return None  # a network with this loss and a positive cosine exists
                break
            proof = sectors.prove(point, cosine, budget.bias_norm)
            if proof.loss_lower >= budget.loss:
                return proof
    return None


def inter_from_means(cosine: float, alignment: float, intra: float) -> float:
    r"""Inter-class cosine that a cosine of class means, an alignment and an intra bound allow.

    $$\mathrm{inter} \le v\rho^2 + 2\sqrt{(\rho^{-2}-1)(1-\mathrm{intra})}$$

    Source: pan2023, Lemma 2.4.6
    Range: [-1, inf); needs v <= 0. The printed lemma is repaired, see docs/certificates.md.

    >>> round(inter_from_means(-0.1, 0.999, 0.998001), 4)
    -0.0958
    """
    spread = math.sqrt(max(1 / alignment**2 - 1, 0.0) * max(1 - intra, 0.0))
    return cosine * alignment**2 + 2 * spread
