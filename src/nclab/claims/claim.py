"""A claim: one statement of a paper, the check that runs, and what the check says."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nclab.claims.links import formula_anchor
from nclab.claims.verdict import Finding, Verdict
from nclab.records.results import UNREADABLE

Numbers = Mapping[str, Any]
Gather = Callable[[str], Numbers]
Judge = Callable[[Numbers], Finding]

OURS = "findings"
"""What the ids of our own findings begin with, in place of the key of a paper."""
ODD = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)
"""What a judge raises on numbers that no experiment of this version wrote."""


class Kind(StrEnum):
    """What the paper calls the statement, or what it is where it has no number."""

    DEFINITION = "definition"
    EQUATION = "equation"
    LEMMA = "lemma"
    PROPOSITION = "proposition"
    COROLLARY = "corollary"
    THEOREM = "theorem"
    PROOF_STEP = "step of a proof"
    REMARK = "remark"
    EXAMPLE = "example"
    CONJECTURE = "conjecture"
    RESULT = "empirical result"


@dataclass(frozen=True)
class Claim:
    """One statement of a paper; its verdict is derived by `judge` from numbers, never typed in.

    >>> def judge(numbers):
    ...     verdict = Verdict.HOLDS if numbers["sum"] == 4 else Verdict.REFUTED
    ...     return Finding(verdict, f"the sum is {numbers['sum']}", numbers)
    >>> claim = Claim("pan2023/sum", Kind.REMARK, "Two and two are four.", "pan2023, Sec. 2.1",
    ...     judge, gather=lambda preset: {"sum": 2 + 2})
    >>> claim.check().verdict.value
    'holds'
    """

    id: str
    """Paper key and number, such as pan2023/lemma-2.4.6."""
    kind: Kind
    text: str
    """The statement in our words."""
    source: str
    """Where it is, and a few words that identify the place: pan2023, Lemma 2.4.6 “the words”."""
    judge: Judge
    """From numbers to a verdict; pure."""
    gather: Gather | None = None
    """From a preset, quick or paper, to the numbers; None where only an experiment has them."""
    needs: str = ""
    """The experiment whose numbers are judged instead, where they are there."""
    code: str = ""
    """The function that computes it, as a dotted path."""
    figure: str = ""
    """The picture that shows it, by the name of its file."""

    @property
    def paper(self) -> str:
        """The key of the paper."""
        return self.id.split("/")[0]

    @property
    def ours(self) -> bool:
        """Whether it is a finding of ours, which no paper says and none is charged with."""
        return self.paper == OURS

    @property
    def place(self) -> str:
        """Where it is, in the grammar of the docstrings: pan2023, Lemma 2.4.6."""
        return self.source.partition(" “")[0]

    @property
    def quote(self) -> str:
        """Words of the source that identify the place; empty where the number does."""
        return self.source.partition(" “")[2].removesuffix("”")

    @property
    def empirical(self) -> bool:
        """Whether only an experiment can tell."""
        return self.gather is None

    def check(self, preset: str = "quick", numbers: Numbers | None = None) -> Finding:
        """Judge the numbers of the experiment, or those that are gathered for the preset."""
        if numbers is None:
            if self.gather is None:
                why = f"no numbers; nclab reproduce {self.needs} makes them"
                return Finding(Verdict.OPEN, why, {})
            return self.judge(self.gather(preset))
        if UNREADABLE in numbers:
            return self._unjudged(str(numbers[UNREADABLE]))
        try:
            finding = self.judge(numbers)
            json.dumps(finding.to_dict(), allow_nan=False)
        except ODD as error:
            return self._unjudged(f"{type(error).__name__}: {error}")
        return finding

    def _unjudged(self, why: str) -> Finding:
        short = " ".join(why.split())[:200]
        evidence = (
            f"cannot be judged from {self.needs}/numbers.json ({short}); "
            f"run `nclab reproduce {self.needs}` again"
        )
        return Finding(Verdict.OPEN, evidence, {})

    def to_dict(self, finding: Finding) -> dict[str, Any]:
        """The claim and its finding as plain JSON values."""
        return {
            "id": self.id,
            "kind": self.kind.value,
            "text": self.text,
            "ours": self.ours,
            "source": f"ours, after {self.place}" if self.ours else self.place,
            "quote": self.quote,
            **finding.to_dict(),
            "needs": self.needs,
            "links": {
                "formula": formula_anchor(self.code),
                "code": self.code,
                "figure": self.figure,
            },
        }


def claim(
    id: str,
    kind: Kind,
    text: str,
    source: str,
    *,
    gather: Gather | None = None,
    needs: str = "",
    code: str = "",
    figure: str = "",
) -> Callable[[Judge], Claim]:
    """Makes a claim of the judge below it; the name of the judge becomes that of the claim.

    >>> @claim("pan2023/sum", Kind.REMARK, "Two and two are four.", "pan2023, Sec. 2.1",
    ...     gather=lambda preset: {"sum": 2 + 2})
    ... def two_and_two(numbers):
    ...     return Finding(Verdict.HOLDS if numbers["sum"] == 4 else Verdict.REFUTED, "", numbers)
    >>> two_and_two.check().verdict.value
    'holds'
    """
    return lambda judge: Claim(id, kind, text, source, judge, gather, needs, code, figure)
