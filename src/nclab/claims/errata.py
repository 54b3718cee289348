"""The errata of both papers; docs/errata.md is made from them."""

from nclab.claims.errata_ji2022 import JI2022
from nclab.claims.errata_pan2023 import PAN2023
from nclab.claims.erratum import Erratum

ERRATA: tuple[Erratum, ...] = (*PAN2023, *JI2022)


def anchor_of(claim_id: str) -> str:
    """Where docs/errata.md speaks of a claim; empty if it does not.

    >>> anchor_of("ji2022/eq-9"), anchor_of("pan2023/lemma-2.4.1")
    ('docs/errata.md#ji2022-eq-9', '')
    """
    found = [erratum.anchor for erratum in ERRATA if claim_id in erratum.claims]
    return found[0] if found else ""
