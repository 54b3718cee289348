"""The ledger: every claim of every paper, found by id and judged."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from nclab.errors import NclabError
from nclab.papers import registry
from nclab.papers.claim import Claim, Numbers
from nclab.progress import track


def find(ids: Sequence[str] = ()) -> list[Claim]:
    """The claims with these ids or beginnings of ids, in the ledger's order; all without any.

    >>> [claim.id for claim in find(["pan2023/lemma-2.4.6"])]
    ['pan2023/lemma-2.4.6']
    >>> {claim.paper for claim in find(["ji2022"])}
    {'ji2022'}
    """
    claims = registry.claims()
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
    return [judged(claim, preset, experiments) for claim in track(find(ids), "judging claims")]


def judge_experiment(name: str, numbers: Numbers) -> list[dict[str, Any]]:
    """The claims that an experiment is about, judged from its numbers."""
    return [judged(one, "quick", {name: numbers}) for one in registry.claims() if one.needs == name]


def judged(
    claim: Claim, preset: str, experiments: Mapping[str, Numbers] | None = None
) -> dict[str, Any]:
    """One claim with its finding and the place where the errata speak of it, as plain JSON."""
    row = claim.to_dict(claim.check(preset, experiments), claim.preset_of(preset, experiments))
    erratum = next((one.anchor for one in registry.errata() if claim.id in one.claims), "")
    return {**row, "links": {**row["links"], "erratum": erratum}}


def _matches(claim: Claim, wanted: str) -> bool:
    return claim.id.startswith(wanted)


def _unknown(wanted: str, known: Sequence[str]) -> str:
    near = get_close_matches(wanted, known, n=1) or [known[0]]
    return (
        f"Expected the id of a claim or its beginning, got {wanted!r}. Did you mean {near[0]}? "
        "nclab claims shows all."
    )
