"""Claims: statements of papers, the checks that judge them, and the verdicts that result."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nclab.records.results import UNREADABLE

Numbers = Mapping[str, Any]
Gather = Callable[[str], Numbers]

OURS = "findings"
"""Prefix of the ids of this project's own findings, in place of the key of a paper."""
JUDGE_ERRORS = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)
"""Errors that a judge raises on numbers of an unknown format."""


class Verdict(StrEnum):
    """Possible outcomes of a check.

    A statement holds, holds with a correction or is refuted. An empirical result is reproduced if
    the interval of its effect lies entirely on the claimed side of the margin, contradicted if it
    lies on the other side, without effect if it lies inside the margins, and otherwise undecided.
    It depends if the source leaves a choice open and different choices give different verdicts.
    A claim that nobody has measured at the size of its source is open.

    Supported and opposed are not verdicts on a paper: published results of the author with one
    seed support or oppose the sentence; they decide nothing. If they are mixed, the finding is
    undecided.
    """

    HOLDS = "holds"
    CORRECTED = "holds with a correction"
    REFUTED = "refuted"
    REPRODUCED = "reproduced"
    CONTRADICTED = "contradicted"
    NO_EFFECT = "no effect"
    DEPENDS = "depends"
    SUPPORTED = "supported"
    OPPOSED = "opposed"
    UNDECIDED = "undecided"
    OPEN = "open"

    @property
    def mark(self) -> str:
        """Symbol of the verdict in texts."""
        return MARKS_AND_TONES[self][0]

    @property
    def tone(self) -> str:
        """Rating of the claim by this verdict (good, fair, bad or open), which selects a colour."""
        return MARKS_AND_TONES[self][1]


MARKS_AND_TONES = {
    Verdict.HOLDS: ("✓", "good"),
    Verdict.REPRODUCED: ("✓", "good"),
    Verdict.CORRECTED: ("◐", "fair"),
    Verdict.REFUTED: ("✗", "bad"),
    Verdict.CONTRADICTED: ("✗", "bad"),
    Verdict.NO_EFFECT: ("○", "bad"),
    Verdict.DEPENDS: ("±", "fair"),
    Verdict.SUPPORTED: ("+", "open"),
    Verdict.OPPOSED: ("−", "open"),
    Verdict.UNDECIDED: ("~", "open"),
    Verdict.OPEN: ("?", "open"),
}
"""Symbol and tone (good, fair, bad or open) of every verdict."""
DECIDED = frozenset({Verdict.REPRODUCED, Verdict.CONTRADICTED, Verdict.NO_EFFECT})
"""Verdicts that count as a decision on an empirical result."""
STYLES = {"good": "green", "fair": "yellow", "bad": "red", "open": "dim"}
"""Terminal style of every tone; the pages of a report define their colours in a style sheet."""


@dataclass(frozen=True)
class Finding:
    """A verdict with its evidence.

    >>> Finding(Verdict.HOLDS, "largest gap 1e-15 in 30 draws", {"gap": 1e-15}).verdict.value
    'holds'
    """

    verdict: Verdict
    evidence: str
    """One sentence that contains the deciding numbers."""
    numbers: Mapping[str, Any]
    """The deciding numbers as plain JSON values."""
    answer: str = ""
    """The result in one plain sentence; empty if the evidence says it."""

    @property
    def sentence(self) -> str:
        """The answer if there is one, otherwise the evidence as a sentence."""
        text = self.answer or self.evidence
        return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', ')')) else '.'}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, with the symbol and the tone of the verdict."""
        return {
            "verdict": self.verdict.value,
            "mark": self.verdict.mark,
            "tone": self.verdict.tone,
            "answer": self.sentence,
            "evidence": self.evidence,
            "numbers": dict(self.numbers),
        }


Judge = Callable[[Numbers], Finding]


class Kind(StrEnum):
    """Type of a statement: as the paper calls it, or a general word if it has no number."""

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
    """One statement of a paper, whose verdict `judge` derives from numbers."""

    id: str
    """Key of the paper and number of the statement, such as pan2023/lemma-2.4.6."""
    kind: Kind
    text: str
    """The statement in our words."""
    source: str
    """Location in the paper and a short quotation: pan2023, Lemma 2.4.6 “the words”."""
    judge: Judge
    """Pure function from numbers to a finding."""
    gather: Gather | None = None
    """Function from a preset (quick or paper) to the numbers; None if an experiment makes them."""
    needs: str = ""
    """Name of the experiment that makes the numbers; empty for a claim with `gather`."""
    code: str = ""
    """Dotted path of the function that computes the quantity of the claim."""
    figure: str = ""
    """File name of the picture that shows the claim, without suffix."""
    beside: tuple[str, ...] = ()
    """Ids of claims of the paper that show this finding next to their own verdict, without any
    influence on it."""

    @property
    def paper(self) -> str:
        """Key of the paper."""
        return self.id.split("/")[0]

    @property
    def ours(self) -> bool:
        """Whether the claim is a finding of this project instead of a statement of a paper."""
        return self.paper == OURS

    @property
    def location(self) -> str:
        """Location in the grammar of the docstrings: pan2023, Lemma 2.4.6."""
        return self.source.partition(" “")[0]

    @property
    def quote(self) -> str:
        """Short quotation from the paper; the statement itself for a finding of this project."""
        return self.text if self.ours else self.source.partition(" “")[2].removesuffix("”")

    @property
    def empirical(self) -> bool:
        """Whether the claim is judged from the numbers of an experiment."""
        return self.gather is None

    def check(self, preset: str = "quick", numbers: Numbers | None = None) -> Finding:
        """Judge the given numbers of the experiment, or gather numbers for the preset and judge."""
        if numbers is None:
            if self.gather is None:
                reason = f"no numbers yet; run `nclab reproduce {self.needs}`"
                return Finding(Verdict.OPEN, reason, {})
            return self.judge(self.gather(preset))
        if UNREADABLE in numbers:
            return self._not_judged(str(numbers[UNREADABLE]))
        try:
            finding = self.judge(numbers)
            json.dumps(finding.to_dict(), allow_nan=False)
        except JUDGE_ERRORS as error:
            return self._not_judged(f"{type(error).__name__}: {error}")
        return finding

    def _not_judged(self, reason: str) -> Finding:
        """Return an open verdict with the reason, shortened to 200 characters."""
        evidence = (
            f"cannot be judged from {self.needs}/numbers.json ({' '.join(reason.split())[:200]}); "
            f"run `nclab reproduce {self.needs}` again"
        )
        return Finding(Verdict.OPEN, evidence, {})

    def to_dict(self, finding: Finding) -> dict[str, Any]:
        """Return the claim and its finding as plain JSON values."""
        return {
            "id": self.id,
            "kind": self.kind.value,
            "text": self.text,
            "ours": self.ours,
            "source": f"ours, after {self.location}" if self.ours else self.location,
            "quote": self.quote,
            **finding.to_dict(),
            "needs": self.needs,
            "links": {"code": self.code, "figure": self.figure},
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
    beside: tuple[str, ...] = (),
) -> Callable[[Judge], Claim]:
    """Return a decorator that turns a judge into a claim of the same name.

    >>> @claim("pan2023/sum", Kind.REMARK, "Two and two are four.", "pan2023, Sec. 2.1",
    ...     gather=lambda preset: {"sum": 2 + 2})
    ... def two_and_two(numbers):
    ...     return Finding(Verdict.HOLDS if numbers["sum"] == 4 else Verdict.REFUTED, "", numbers)
    >>> two_and_two.check().verdict.value
    'holds'
    """
    return lambda judge: Claim(id, kind, text, source, judge, gather, needs, code, figure, beside)
