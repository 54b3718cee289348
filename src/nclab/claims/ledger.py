"""The ledger: every claim of every paper, found by id and judged."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from nclab.claims import registry
from nclab.claims.claim import Claim, Numbers
from nclab.claims.recorded import best_evidence, size_of
from nclab.claims.verdict import Finding, Verdict
from nclab.errors import NclabError
from nclab.progress import track
from nclab.records.results import UNREADABLE


def find(ids: Sequence[str] = ()) -> list[Claim]:
    """The claims with these ids or beginnings of ids, in the ledger's order; all without any.

    >>> [claim.id for claim in find(["pan2023/lemma-2.4.6"])]
    ['pan2023/lemma-2.4.6']
    >>> {claim.paper for claim in find(["ji2022"])}
    {'ji2022'}
    """
    claims = registry.claims()
    for wanted in ids:
        if not wanted.strip() or not any(_matches(claim, wanted) for claim in claims):
            raise NclabError(_unknown(wanted, [claim.id for claim in claims]))
    return [claim for claim in claims if not ids or any(_matches(claim, one) for one in ids)]


def judge_all(
    preset: str = "quick",
    here: Mapping[str, Numbers] | None = None,
    *,
    ids: Sequence[str] = (),
    fresh: bool = False,
) -> list[dict[str, Any]]:
    """Check claims and give each with its verdict, evidence, numbers and links as plain JSON.

    Statements are checked now. Results are judged from the evidence recorded at the size of their
    source; what this machine's own runs say stands beside it.

    Args:
        preset: how thoroughly statements are checked.
        here: the numbers of this machine's experiments by name.
        ids: as for `find`.
        fresh: judge results from this machine's numbers alone.

    >>> [found] = judge_all(ids=["pan2023/lemma-2.4.4"])
    >>> found["verdict"]
    'holds'
    """
    own = here or {}
    return [
        judged_here(claim, own.get(claim.needs))
        if fresh and claim.empirical
        else judged(claim, preset, own.get(claim.needs))
        for claim in track(find(ids), "judging claims")
    ]


def judge_experiment(name: str, numbers: Numbers) -> list[dict[str, Any]]:
    """The claims that an experiment is about, judged from these numbers alone."""
    return [judged_here(one, numbers) for one in registry.claims() if one.needs == name]


def judge_needing(name: str, here: Numbers) -> list[dict[str, Any]]:
    """The claims that an experiment is about, as `judge_all` would give them."""
    return [judged(one, "quick", here) for one in registry.claims() if one.needs == name]


def judged_here(claim: Claim, numbers: Numbers | None) -> dict[str, Any]:
    """One claim judged from these numbers, whatever their size, which is said."""
    return _row(claim, claim.check(numbers=numbers), numbers)


def judged(claim: Claim, preset: str, here: Numbers | None = None) -> dict[str, Any]:
    """One claim with its verdict; a result from its recorded evidence, with what is found here."""
    if not claim.empirical:
        return _row(claim, claim.check(preset), None)
    evidence = best_evidence(claim.needs)
    if evidence is None:
        ran = here is not None and here.get("preset") == "paper"
        how = "claims --fresh judges this run" if ran else f"reproduce {claim.needs} --preset paper"
        found = Finding(Verdict.OPEN, f"nothing is recorded; nclab {how}", {})
    else:
        found = claim.check(numbers=evidence)
    row = _row(claim, found, evidence)
    if here is None:
        return row
    own = claim.check(numbers=here)
    return {
        **row,
        "here": {
            "verdict": own.verdict.value,
            "evidence": own.evidence,
            "effects": list(own.numbers.get("effects", ())),
            "size": "" if UNREADABLE in here else size_of(here),
            "relation": relation(settled(found), settled(own)),
            "says": says(found, own),
        },
    }


def settled(found: Finding) -> Verdict:
    """The verdict or, of what is open at the source's own size or networks, the one elsewhere.

    >>> settled(Finding(Verdict.OPEN, "", {"there": "reproduced"})).value
    'reproduced'
    """
    there = found.numbers.get("there") if found.verdict is Verdict.OPEN else None
    return Verdict(there) if there else found.verdict


def relation(recorded: Verdict, here: Verdict) -> str:
    """What this machine's reduced run says beside the recorded verdict.

    >>> relation(Verdict.REPRODUCED, Verdict.REPRODUCED), relation(Verdict.REPRODUCED, Verdict.OPEN)
    ('agrees', 'undecided')
    >>> relation(Verdict.UNDECIDED, Verdict.REPRODUCED)
    'undecided'
    """
    if {recorded, here} & {Verdict.OPEN, Verdict.UNDECIDED}:
        return "undecided"
    return "agrees" if here is recorded else "differs"


def says(recorded: Finding, here: Finding) -> str:
    """The relation in words that hide neither side; what cannot be judged says why.

    >>> undecided, reproduced, contradicted = (
    ...     Finding(one, "", {})
    ...     for one in (Verdict.UNDECIDED, Verdict.REPRODUCED, Verdict.CONTRADICTED)
    ... )
    >>> says(reproduced, reproduced), says(reproduced, contradicted)
    ('agrees (reproduced)', 'differs (contradicted here, recorded reproduced)')
    >>> says(undecided, reproduced), says(reproduced, undecided)
    ('undecided (reproduced here, recorded undecided)', 'undecided here, recorded reproduced')
    >>> says(undecided, undecided)
    'undecided, as recorded'
    """
    there, own = settled(recorded), settled(here)
    how = relation(there, own)
    if own is Verdict.OPEN:
        return f"{how}; {here.evidence}"
    elsewhere = "" if there is recorded.verdict else " where it could be measured"
    if own is there:
        alike = "undecided, as recorded" if own is Verdict.UNDECIDED else f"agrees ({own.value}"
        return f"{alike}{elsewhere}{'' if own is Verdict.UNDECIDED else ')'}"
    before = f"recorded {there.value}{elsewhere}"
    if own is Verdict.UNDECIDED:
        return f"undecided here, {before}"
    return f"{how} ({own.value} here, {before})"


def _row(claim: Claim, finding: Finding, numbers: Numbers | None) -> dict[str, Any]:
    """With the size of the numbers and the place where the errata speak of the claim."""
    row = claim.to_dict(finding)
    erratum = next((one.anchor for one in registry.errata() if claim.id in one.claims), "")
    return {
        **row,
        "size": size_of(numbers) if numbers else "",
        "links": {**row["links"], "erratum": erratum},
    }


def _matches(claim: Claim, wanted: str) -> bool:
    return claim.id.startswith(wanted)


def _unknown(wanted: str, known: Sequence[str]) -> str:
    """With what may have been meant, if anything is near: an id, or the key of a paper."""
    keys = dict.fromkeys(id_.partition("/")[0] for id_ in known)
    plain = {name.lower(): name for name in (*known, *keys)}
    beginning = [name for low, name in plain.items() if wanted.strip() and low == wanted.lower()]
    near = beginning or [plain[low] for low in get_close_matches(wanted.lower(), plain, n=1)]
    meant = f" Did you mean {near[0]}?" if near else f" Ids begin with {', '.join(keys)}."
    return (
        f"Expected the id of a claim or its beginning, got {wanted!r}.{meant} "
        "nclab claims shows all."
    )
