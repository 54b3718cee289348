"""Artificial results of thrampoulidis2022 for tests; they are those of `fang2021_imbalance`."""

from nclab.claims.attacks import Attacks, change_where, swap, unchanged, weakened
from nclab_papers.fang2021.attacks import SCALED_DISTANCES

CLAIM = "thrampoulidis2022/networks-follow-seli"
ATTACKS = Attacks(
    spoiled={CLAIM: change_where("networks", "from_seli", 0.5)},
    shuffled={CLAIM: swap("networks", "from_etf", "from_seli")},
    wrong_code={CLAIM: (unchanged, weakened(SCALED_DISTANCES))},
)
