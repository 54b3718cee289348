"""A claim: one statement of a paper, the check that runs, and what the check says."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nclab.papers.links import formula_anchor
from nclab.papers.verdict import Finding, Verdict
from nclab.records.results import UNREADABLE

Numbers = Mapping[str, Any]
Gather = Callable[[str], Numbers]
Judge = Callable[[Numbers], Finding]

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
    """Where it is, in the grammar of the docstrings: pan2023, Lemma 2.4.6."""
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

    def check(
        self, preset: str = "quick", experiments: Mapping[str, Numbers] | None = None
    ) -> Finding:
        """Gather the numbers, or take those of the experiment, and judge them."""
        numbers = (experiments or {}).get(self.needs)
        if numbers is None:
            if self.gather is None:
                return Finding(Verdict.OPEN, f"needs `nclab reproduce {self.needs}`", {})
            return self.judge(self.gather(preset))
        if UNREADABLE in numbers:
            return self._unjudged(str(numbers[UNREADABLE]))
        try:
            finding = self.judge(numbers)
            json.dumps(finding.to_dict(), allow_nan=False)
        except ODD as error:
            return self._unjudged(f"{type(error).__name__}: {error}")
        return finding

    def preset_of(
        self, preset: str, experiments: Mapping[str, Numbers] | None = None
    ) -> str | None:
        """The preset of the numbers that `check` judges; None where they do not say, or are not.

        >>> fields = ("pan2023/x", Kind.RESULT, "X.", "pan2023, Sec. 3.1", lambda numbers: None)
        >>> claim = Claim(*fields, needs="pan2023_fig31")
        >>> claim.preset_of("paper", {"pan2023_fig31": {"preset": "quick"}})
        'quick'
        """
        numbers = (experiments or {}).get(self.needs)
        if numbers is None:
            return None if self.gather is None else preset
        own = numbers.get("preset")
        return own if isinstance(own, str) else None

    def _unjudged(self, why: str) -> Finding:
        short = " ".join(why.split())[:200]
        evidence = (
            f"cannot be judged from {self.needs}/numbers.json ({short}); "
            f"run `nclab reproduce {self.needs}` again"
        )
        return Finding(Verdict.OPEN, evidence, {})

    def to_dict(self, finding: Finding, preset: str | None = None) -> dict[str, Any]:
        """The claim and its finding as plain JSON values, with the preset of its numbers."""
        return {
            "id": self.id,
            "kind": self.kind.value,
            "text": self.text,
            "source": self.source,
            **finding.to_dict(),
            "preset": preset,
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
