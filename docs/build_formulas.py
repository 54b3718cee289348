"""Build docs/formulas.md from the `Source:` lines of the docstrings.

python docs/build_formulas.py
"""

import ast
import re
from pathlib import Path
from typing import NamedTuple

from nclab.claims.paper import Paper
from nclab.claims.registry import papers

ROOT = Path(__file__).parent.parent
HEADER = """# Formulas

Every formula in nclab, by the paper it comes from. `make docs` builds this page from the
docstrings; do not edit it. [notation.md](notation.md) explains the symbols. The code is in
[nclab](../src/nclab) and [nclab_papers](../src/nclab_papers).
"""
CITED = (
    Paper(
        "galanti2022",
        "On the Role of Neural Collapse in Transfer Learning",
        "T. Galanti, A. Gyorgy, M. Hutter",
        2022,
        symbols={"V_f(Q_1, Q_2)": "cdnv of a pair"},
    ),
    Paper(
        "garrido2023",
        "RankMe: Assessing the Downstream Performance of Pretrained Self-Supervised "
        "Representations by Their Rank",
        "Q. Garrido, R. Balestriero, L. Najman, Y. LeCun",
        2023,
    ),
    Paper(
        "luthra2026",
        "Directional Neural Collapse Explains Few-Shot Transfer in Self-Supervised Learning",
        "A. Luthra, Y. Salunkhe, T. Galanti",
        2026,
    ),
    Paper(
        "papyan2020",
        "Prevalence of Neural Collapse during the Terminal Phase of Deep Learning Training",
        "V. Papyan, X. Y. Han, D. L. Donoho",
        2020,
        symbols={"mu_G (mean over samples)": "mean of the class means"},
    ),
    Paper(
        "thilak2024",
        "LiDAR: Sensing Linear Probing Performance in Joint Embedding SSL Architectures",
        "V. Thilak, C. Huang, O. Saremi, L. Dinh, H. Goh, P. Nakkiran, J. M. Susskind, E. Littwin",
        2024,
    ),
    Paper(
        "wu2024",
        "Linguistic Collapse: Neural Collapse in (Large) Language Models",
        "R. Wu, V. Papyan",
        2024,
    ),
    Paper(
        "zhu2021",
        "A Geometric Analysis of Neural Collapse with Unconstrained Features",
        "Z. Zhu, T. Ding, J. Zhou, X. Li, C. You, J. Sulam, Q. Qu",
        2021,
    ),
)
"""Sources that docstrings cite for a formula, without experiments or claims."""


class Formula(NamedTuple):
    """A function whose docstring names a source."""

    key: str
    place: str
    name: str
    file: str
    line: int
    summary: str
    formula: str
    range: str


def formulas() -> list[Formula]:
    """Return all formulas in the order of files and lines."""
    result = []
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                continue
            doc = ast.get_docstring(node) or ""
            source = re.search(r"^Source: (\w+), (.+)$", doc, re.MULTILINE)
            if not source:
                continue
            formula = re.search(r"\$\$(.+?)\$\$", doc, re.DOTALL)
            limits = re.search(r"^Range: ((?:.+\n?)+?)(?=\n|[A-Z][a-z ]+: |\Z)", doc, re.MULTILINE)
            result.append(
                Formula(
                    key=source[1],
                    place=source[2],
                    name=node.name,
                    file=file.relative_to(ROOT).as_posix(),
                    line=node.lineno,
                    summary=doc.splitlines()[0],
                    formula=" ".join(formula[1].split()) if formula else "",
                    range=" ".join(limits[1].split()) if limits else "",
                )
            )
    return result


def sources() -> dict[str, Paper]:
    """Return every paper and every other source of a formula by its key, in alphabetical order."""
    cited = {paper.key: paper for paper in CITED}
    return dict(sorted({**cited, **papers()}.items()))


def page() -> str:
    """Return the page of formulas."""
    everything = formulas()
    parts = [HEADER]
    for key, paper in sources().items():
        cited = [formula for formula in everything if formula.key == key]
        if not cited:
            continue
        parts.append(f"\n## {key}\n\n{paper.authors}, *{paper.title}* ({paper.year}).\n")
        for formula in cited:
            link = f"[`{formula.name}`](../{formula.file})"
            parts.append(f"\n### {formula.place} · {link}\n\n{formula.summary}\n")
            if formula.formula:
                parts.append(f"\n$${formula.formula}$$\n")
            if formula.range:
                parts.append(f"\nRange: {formula.range}\n")
    return "".join(parts)


if __name__ == "__main__":
    target = ROOT / "docs" / "formulas.md"
    target.write_text(page())
    print(f"wrote {target.relative_to(ROOT)} with {len(formulas())} formulas")
