"""What networks on imbalanced classes say about SELI; they are those of `fang2021_imbalance`."""

from nclab.claims.claim import Finding, Kind, Numbers, claim
from nclab.claims.judging import Part, judge_effects
from nclab_papers.fang2021.imbalance import compared, gap
from nclab_papers.shared.rows import of_the_source


@claim(
    "thrampoulidis2022/networks-follow-seli",
    Kind.RESULT,
    "On imbalanced classes networks go to the SELI geometry, not to a simplex ETF.",
    "thrampoulidis2022, Sec. Abstract “experiments on synthetic and real datasets that confirm”",
    needs="fang2021_imbalance",
    figure="fang2021_imbalance",
    code="nclab_papers.fang2021.imbalance.compared",
)
def networks_follow_seli(numbers: Numbers) -> Finding:
    """Distance of the classifier's Gram matrix from the ETF − from SELI."""
    nearer = compared(numbers, gap("from_etf", "from_seli"))
    found = judge_effects([Part("distance, ETF − SELI", nearer)], margin=0.01)
    return of_the_source(found, numbers)
