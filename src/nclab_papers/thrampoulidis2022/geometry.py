"""SELI (simplex-encoded labels interpolation) and the networks of `fang2021_imbalance`."""

from nclab.claims.claim import Finding, Kind, Numbers, claim
from nclab.claims.effects import Part
from nclab.claims.judging import judge_effects
from nclab_papers.fang2021.imbalance import mean_by_seed
from nclab_papers.shared.study import column, of_the_source


@claim(
    "thrampoulidis2022/networks-follow-seli",
    Kind.RESULT,
    "On imbalanced classes networks converge to the SELI geometry, not to a simplex ETF.",
    "thrampoulidis2022, Sec. Abstract “experiments on synthetic and real datasets that confirm”",
    needs="fang2021_imbalance",
    figure="fang2021_imbalance",
    code="nclab_papers.fang2021.imbalance.mean_by_seed",
)
def networks_follow_seli(numbers: Numbers) -> Finding:
    """Require that the classifier's Gram matrix is nearer to SELI than to the simplex ETF."""
    nearer = mean_by_seed(numbers, column("from_etf", minus="from_seli"))
    finding = judge_effects(
        [Part("difference of distances, from the ETF − from SELI", nearer)], margin=0.01
    )
    return of_the_source(finding, numbers)
