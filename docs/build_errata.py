"""Build docs/errata.md from the errata of all papers.

python docs/build_errata.py
"""

from pathlib import Path

from nclab.claims.paper import Erratum
from nclab.claims.registry import errata, papers

ROOT = Path(__file__).parent.parent
HEADER = """# Errata of both papers

What the papers print, what they should say, and why. Made by `make docs` from the
[claims ledger](claims.md); do not edit. Every entry with a check names the command that runs it:
the verdict comes from numbers and would change with them. Both papers were read from scans, so a
few slips may be those of our copies. Symbols: [notation.md](notation.md).

Most are slips. What matters to a reader who builds on the papers: in pan2023 the steps that turn
inner products with mean unit features into cosines (Lemma 2.4.6 and the end of the proof; the
theorem survives, its constants do not), and in ji2022 what Example 3.1 says of stochastic descent.
"""


CONFIDENCE = {
    "certain": "certain",
    "likely": "likely",
    "scan": "scan: our copy is one, and may have lost it",
}


def entry(erratum: Erratum) -> str:
    """Return one erratum as a section."""
    lines = [
        f"\n### {erratum.where}\n",
        f"\n- **Printed:** {erratum.printed}",
        f"\n- **Correct:** {erratum.correct}",
        f"\n- **Why:** {erratum.why}\n",
        f"- **Confidence:** {CONFIDENCE[erratum.confidence]}\n",
    ]
    if erratum.claims:
        lines.append(f"- **Check:** `nclab claims {' '.join(erratum.claims)}`\n")
    return "".join(lines)


def typo(erratum: Erratum) -> str:
    """Return a typo as one item of a list, with the anchor that links to it."""
    anchor = erratum.anchor.partition("#")[2]
    sentences = f"{erratum.printed} → {erratum.correct} {erratum.why}"
    return f'- <a id="{anchor}"></a>**{erratum.where}:** {sentences}\n'


def page() -> str:
    """Return the page of errata."""
    parts = [HEADER]
    for key, paper in papers().items():
        found = [erratum for erratum in errata() if erratum.paper == key]
        entries = [entry(erratum) for erratum in found if not erratum.typo]
        if entries:
            parts.append(f"\n## {key}\n\n{paper.authors}, *{paper.title}* ({paper.year}).\n")
            parts += entries
    typos = [typo(erratum) for erratum in errata() if erratum.typo]
    return "".join([*parts, "\n## Typos\n\nSlips of the pen that mislead no reader.\n\n", *typos])


if __name__ == "__main__":
    target = ROOT / "docs" / "errata.md"
    target.write_text(page())
    print(f"wrote {target.relative_to(ROOT)} with {len(errata())} errata")
