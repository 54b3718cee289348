"""Upper bound on the inter-class cosine: the worst pair of class means, proved by duality."""

import math

from nclab.theory.certificates.norms_and_loss import NormsAndLoss
from nclab.theory.certificates.worst_pair import MeanCosineProof, WorstPair

INFLATIONS = (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 2.0, 8.0, 32.0)
"""Extra excess loss, relative, given to the worst case so that its dual proves the given loss:
little against rounding, much where a bias has to be covered or the excess is below rounding."""

SMALLEST = 1e-290
"""Below this best loss the search would divide by numbers out of range."""


def mean_cosine_upper(given: NormsAndLoss) -> MeanCosineProof | None:
    r"""The largest cosine of two class means that the loss allows, proved by duality.

    $$v^* = \max\cos(\tilde h_1,\tilde h_2)\ \text{s.t. loss} \le m+\varepsilon,\qquad
    L \ge f(Z)-\langle G,Z\rangle-(\mu_P+\mu_Q)\,C\alpha\beta$$

    Source: pan2023, Thm 2.3.1
    Range: [-1/(C-1), 0], or None where no cosine <= 0 can be proved.

    >>> from nclab.theory.certificates.norms_and_loss import norms_and_loss
    >>> proof = mean_cosine_upper(norms_and_loss(10, 2.0, 2.5, 0.0342017 + 1e-5))
    >>> round(proof.cosine, 3)
    -0.073
    """
    if given.optimal_loss < SMALLEST:
        return None
    pair = WorstPair(given.num_classes, given.product)
    for start in pair.starts(given.excess / given.optimal_loss):
        point = start
        for inflation in INFLATIONS:
            excess = given.excess * (1 + inflation)
            point = pair.worst(point, excess)
            cosine = pair.cosine(point)
            if not cosine <= 0:
                if inflation == INFLATIONS[0] and pair.reachable(point, excess):
                    return None  # a network with this loss and a positive cosine exists
                break
            proof = pair.prove(point, cosine, given.bias_norm)
            if proof.loss_lower >= given.loss:
                return proof
    return None


def inter_from_means(cosine: float, alignment: float, intra: float) -> float:
    r"""Inter-class cosine that a cosine of class means, an alignment and an intra bound allow.

    $$\mathrm{inter} \le \max(v, v\rho^2) + 2\sqrt{(\rho^{-2}-1)(1-\mathrm{intra})}$$

    Source: pan2023, Lemma 2.4.6
    Range: [-1, inf). The printed lemma is repaired, see docs/certificates.md.

    >>> round(inter_from_means(-0.1, 0.999, 0.998001), 4)
    -0.0958
    """
    spread = math.sqrt(max(1 / alignment**2 - 1, 0.0) * max(1 - intra, 0.0))
    return max(cosine, cosine * alignment**2) + 2 * spread
