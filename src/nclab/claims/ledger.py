"""The ledger: every claim of both papers, found by id and judged."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

from nclab.claims.claim import Claim, Numbers
from nclab.errors import NclabError
from nclab.progress import track


@cache
def all_claims() -> tuple[Claim, ...]:
    """Every claim, in the order of the papers.

    >>> len(all_claims()) >= 35
    True
    """
    from nclab.claims import (
        ji2022_descent,
        ji2022_example,
        ji2022_flow,
        ji2022_landscape,
        ji2022_margin,
        ji2022_networks,
        ji2022_setting,
        pan2023_chapter3,
        pan2023_lemmas,
        pan2023_measures,
        pan2023_networks,
        pan2023_proof,
        pan2023_remarks,
        pan2023_setting,
        pan2023_theorem,
    )

    modules = (
        pan2023_setting,
        pan2023_measures,
        pan2023_theorem,
        pan2023_remarks,
        pan2023_lemmas,
        pan2023_proof,
        pan2023_networks,
        pan2023_chapter3,
        ji2022_setting,
        ji2022_margin,
        ji2022_flow,
        ji2022_example,
        ji2022_landscape,
        ji2022_descent,
        ji2022_networks,
    )
    return tuple(claim for module in modules for claim in module.CLAIMS)


def find(ids: Sequence[str] = ()) -> list[Claim]:
    """The claims with these ids or beginnings of ids, in the ledger's order; all without any.

    >>> [claim.id for claim in find(["pan2023/lemma-2.4.6"])]
    ['pan2023/lemma-2.4.6']
    >>> {claim.paper for claim in find(["ji2022"])}
    {'ji2022'}
    """
    claims = all_claims()
    for wanted in ids:
        if not any(_matches(claim, wanted) for claim in claims):
            raise NclabError(_unknown(wanted, [claim.id for claim in claims]))
    return [claim for claim in claims if not ids or any(_matches(claim, one) for one in ids)]


def judge_all(
    preset: str = "quick",
    experiments: Mapping[str, Numbers] | None = None,
    *,
    ids: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Check claims and give each with its verdict, evidence, numbers and links as plain JSON.

    Args:
        experiments: the numbers of finished experiments by name, for the empirical claims.
        ids: as for `find`.

    >>> [found] = judge_all(ids=["pan2023/lemma-2.4.4"])
    >>> found["verdict"]
    'holds'
    """
    return [
        claim.to_dict(claim.check(preset, experiments), claim.preset_of(preset, experiments))
        for claim in track(find(ids), "judging claims")
    ]


def _matches(claim: Claim, wanted: str) -> bool:
    return claim.id.startswith(wanted)


def _unknown(wanted: str, known: Sequence[str]) -> str:
    near = get_close_matches(wanted, known, n=1) or [known[0]]
    return (
        f"Expected the id of a claim or its beginning, got {wanted!r}. Did you mean {near[0]}? "
        "nclab claims shows all."
    )
