"""Ledger of claims: finds claims by id and judges them."""

import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from nclab.claims import registry
from nclab.claims.claim import Claim, Finding, Numbers, Verdict
from nclab.claims.evidence import best_evidence, describe_size
from nclab.errors import NclabError
from nclab.progress import track
from nclab.records.results import UNREADABLE
from nclab.text import counted


def find(ids: Sequence[str] = ()) -> list[Claim]:
    """Return the claims whose ids begin with one of the given texts; all claims by default.

    >>> [claim.id for claim in find(["pan2023/lemma-2.4.6"])]
    ['pan2023/lemma-2.4.6']
    """
    claims = registry.claims()
    keys = dict.fromkeys(claim.paper for claim in claims)
    for prefix in ids:
        if not prefix.strip() or not any(claim.id.startswith(prefix) for claim in claims):
            lower = {name.lower(): name for name in (*(claim.id for claim in claims), *keys)}
            near = get_close_matches(prefix.lower(), lower, n=1)
            hint = f"Ids begin with {', '.join(keys)}."
            hint = f"Did you mean {lower[near[0]]}?" if near else hint
            raise NclabError(
                f"Expected the id of a claim or its beginning, got {prefix!r}. {hint} "
                "Run `nclab claims` to list all ids."
            )
    return [claim for claim in claims if not ids or claim.id.startswith(tuple(ids))]


def judge_all(
    preset: str = "quick",
    local: Mapping[str, Numbers] | None = None,
    *,
    ids: Sequence[str] = (),
    fresh: bool = False,
) -> list[dict[str, Any]]:
    """Judge claims and return each with verdict, evidence, numbers and links as plain JSON values.

    Mathematical statements are checked on new data sets. Claims about experiments are judged from
    the evidence that was recorded at the size of their source; the verdicts of this machine's runs
    are added as `here`.

    Args:
        preset: number of data sets for each statement: quick, or ten times as many with paper.
        local: numbers of this machine's experiments by name.
        ids: as for `find`.
        fresh: judge results from this machine's numbers alone.
    """
    numbers = local or {}
    return [
        judge(claim, numbers.get(claim.needs), preset=preset, recorded=not fresh)
        for claim in track(find(ids), "judging claims")
    ]


def judge_experiment(
    name: str, numbers: Numbers, *, recorded: bool = False
) -> list[dict[str, Any]]:
    """Judge the claims about an experiment from its `numbers`; for `recorded` see `judge`."""
    claims = [claim for claim in registry.claims() if claim.needs == name]
    if recorded:
        return [judge(claim, numbers) for claim in claims]
    return [_row(claim, claim.check(numbers=numbers), numbers) for claim in claims]


def judge(
    claim: Claim, local: Numbers | None, *, preset: str = "quick", recorded: bool = True
) -> dict[str, Any]:
    """Judge one claim; a claim without an experiment is checked with the preset.

    Args:
        local: numbers of this machine's experiment.
        recorded: judge from the recorded evidence and add the verdict of `local` as `here`;
            otherwise judge from `local`.
    """
    if not claim.empirical:
        return _row(claim, claim.check(preset), None)
    if not recorded:
        return _row(claim, claim.check(numbers=local), local)
    evidence = best_evidence(claim.needs)
    if evidence is None:
        is_full_size = local is not None and local.get("preset") == "paper"
        command = "nclab claims --fresh" if is_full_size else paper_command(claim.needs)
        known = Finding(Verdict.OPEN, f"nothing is recorded; run `{command}`", {})
    else:
        known = claim.check(numbers=evidence)
    row = _row(claim, known, evidence)
    if local is None:
        return row
    finding = claim.check(numbers=local)
    return {
        **row,
        "here": {
            "verdict": finding.verdict.value,
            "evidence": finding.evidence,
            "effects": list(finding.numbers.get("effects", ())),
            "size": "" if UNREADABLE in local else describe_size(local),
            "relation": relation(effective_verdict(known), effective_verdict(finding)),
            "says": describe_relation(known, finding) + describe_signs(known, finding),
        },
    }


def effective_verdict(finding: Finding) -> Verdict:
    """Return the verdict; if it is open, return the verdict on other networks if there is one.

    A claim about networks that nobody could test may have a verdict on other networks, under the
    key `there` of its numbers.

    >>> effective_verdict(Finding(Verdict.OPEN, "", {"there": "reproduced"})).value
    'reproduced'
    """
    elsewhere = finding.numbers.get("there") if finding.verdict is Verdict.OPEN else None
    return Verdict(elsewhere) if elsewhere else finding.verdict


def relation(recorded: Verdict, local: Verdict) -> str:
    """Return whether this machine's verdict agrees with the recorded one."""
    if {recorded, local} & {Verdict.OPEN, Verdict.UNDECIDED, Verdict.DEPENDS}:
        return "undecided"
    return "agrees" if local is recorded else "differs"


def describe_relation(recorded: Finding, local: Finding) -> str:
    """Say whether this machine's verdict agrees with the recorded one; if it is open, say why."""
    recorded_verdict, verdict = effective_verdict(recorded), effective_verdict(local)
    outcome = relation(recorded_verdict, verdict)
    if verdict is Verdict.OPEN:
        return f"{outcome}; {local.evidence}"
    where = "" if recorded_verdict is recorded.verdict else " where it could be measured"
    if verdict is recorded_verdict:
        if verdict is Verdict.UNDECIDED:
            return f"undecided, as recorded{where}"
        return f"agrees ({verdict.value}{where})"
    before = f"recorded {recorded_verdict.value}{where}"
    if verdict is Verdict.UNDECIDED:
        return f"undecided here, {before}"
    return f"{outcome} ({verdict.value} here, {before})"


HEADLINE = ("estimate", "interval", "margin", "seeds")
"""Keys of the numbers of a finding that describe the weakest part of the claim."""


def command_of(claim: Claim, numbers: Numbers | None = None) -> str:
    """Return the command that repeats the check, or the experiment that made the numbers.

    >>> command_of(find(["pan2023/lemma-2.4.6"])[0])
    'nclab claims pan2023/lemma-2.4.6 --preset paper'
    """
    if not claim.empirical:
        return f"nclab claims {claim.id} --preset paper"
    manifest = (numbers or {}).get("manifest")
    recorded = manifest.get("command") if isinstance(manifest, dict) else None
    return str(recorded or paper_command(claim.needs))


def paper_command(experiment: str) -> str:
    """Return the command that runs an experiment at the size of its source.

    >>> paper_command("pan2023_author_results")
    'nclab reproduce pan2023_author_results --preset paper --author-data FOLDER'
    """
    needs_files = hasattr(registry.experiments()[experiment], "REPOSITORY")
    command = f"nclab reproduce {experiment} --preset paper"
    return f"{command} --author-data FOLDER" if needs_files else command


def shown_beside(claim: Claim) -> list[dict[str, Any]]:
    """Return the recorded findings that are shown beside the verdict on a claim.

    >>> [finding["verdict"] for finding in shown_beside(*find(["pan2023/sec-3.1-norms-fall"]))]
    ['undecided']
    """
    rows = []
    for other in registry.claims():
        evidence = best_evidence(other.needs) if claim.id in other.beside else None
        if evidence is not None:
            finding = other.check(numbers=evidence)
            verdict, answer = finding.verdict.value, finding.sentence
            rows.append({"id": other.id, "verdict": verdict, "answer": answer})
    return rows


def hours_per_seed(numbers: Numbers | None) -> float | None:
    """Return the core hours that a seed of an experiment took; None if not recorded.

    The records contain hours on two cores.
    """
    manifest, seeds = (numbers or {}).get("manifest"), (numbers or {}).get("seeds")
    if not isinstance(manifest, dict) or not isinstance(seeds, list) or not seeds:
        return None
    hours = manifest.get("hours")
    return 2 * hours / len(seeds) if isinstance(hours, int | float) else None


def describe_cost(more: int | None, hours: float | None) -> str:
    """Return in one sentence what it takes to settle an undecided claim.

    >>> describe_cost(3, 2.5), describe_cost(1, None)
    ('Probably 3 more seeds settle it (8 core hours).', 'Probably 1 more seed settles it.')
    >>> describe_cost(None, 2.5)
    'It is too close to the margin to settle.'
    """
    if more is None:
        return "It is too close to the margin to settle."
    verb = "settles" if more == 1 else "settle"
    cost = "" if hours is None else f" ({counted(max(math.ceil(more * hours), 1), 'core hour')})"
    return f"Probably {counted(more, 'more seed')} {verb} it{cost}."


def describe_signs(recorded: Finding, local: Finding) -> str:
    """Say how many effects have the same sign in this machine's runs as in the recorded ones.

    The sign says on which side of the edge of the claimed range an effect lies.

    Signs are compared because the intervals of a few seeds are too wide to compare.
    """
    sides = [
        {effect["what"]: effect["beyond"][0] > 0 for effect in finding.numbers.get("effects", ())}
        for finding in (recorded, local)
    ]
    common = sides[0].keys() & sides[1].keys()
    same = sum(sides[0][name] == sides[1][name] for name in common)
    return f"; {same} of {counted(len(common), 'effect')} have the recorded sign" if common else ""


def _row(claim: Claim, finding: Finding, numbers: Numbers | None) -> dict[str, Any]:
    """Return a judged claim with all that terminal and pages show of it, such as its erratum."""
    row, found = claim.to_dict(finding), finding.numbers
    anchors = (erratum.anchor for erratum in registry.errata() if claim.id in erratum.claims)
    if finding.verdict is Verdict.UNDECIDED and "more_seeds" in found:
        hours = hours_per_seed(numbers)
        row["answer"] += f" {describe_cost(found['more_seeds'], hours)}"
    beside = shown_beside(claim)
    row["answer"] = " ".join([row["answer"], *(other["answer"] for other in beside)])
    return {
        **row,
        "beside": beside,
        **{key: found.get(key) for key in HEADLINE if claim.empirical},
        "readings": list(found.get("readings", ())),
        "command": command_of(claim, numbers),
        "size": describe_size(numbers) if numbers else "",
        "links": {**row["links"], "erratum": next(anchors, "")},
    }
