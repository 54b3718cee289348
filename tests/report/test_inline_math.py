"""Formulas in sentences are typeset, sentences stay sentences, and nothing is injected."""

import re
from xml.etree import ElementTree

import pytest

from nclab.claims.registry import claims, errata
from nclab.report.inline_math import typeset


def formulas(text: str) -> list[str]:
    """What was typeset, in a bracketed form that can be read."""
    found = re.findall(r"<math>.*?</math>", typeset(text))
    return [_read(ElementTree.fromstring(one)) for one in found]


def _read(node: ElementTree.Element) -> str:
    parts = [_read(child) for child in node]
    if node.tag == "mfrac":
        return f"[{parts[0]}]/[{parts[1]}]"
    if node.tag in ("msub", "msup", "msubsup"):
        marks = {"msub": ("_",), "msup": ("^",), "msubsup": ("_", "^")}[node.tag]
        rest = zip(marks, parts[1:], strict=True)
        return parts[0] + "".join(f"{mark}{{{part}}}" for mark, part in rest)
    if node.tag == "msqrt":
        return f"√[{''.join(parts)}]"
    return (node.text or "") + "".join(parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("with epsilon = sqrt(2(1 - beta)/C) and", ["ε=√[2[1−β]/[C]]"]),
        ("like (log t)^(-1/2) in the end", ["(logt)^{−[1]/[2]}"]),
        ("not 1/log t.", ["[1]/[logt]"]),
        ("cosines -1/(K-1); the", ["−[1]/[K−1]"]),
        ("the total is lambda/2 (C beta^2 + alpha^2).", ["[λ]/[2](Cβ^{2}+α^{2})"]),
        ("At most (|W|^2 + |H|^2)/(2 (K-1) sqrt n)", ["[|W|^{2}+|H|^{2}]/[2(K−1)√[n]]"]),
        ("score w_c' h_c below", ["w_{c^{′}}h_{c}"]),
        ("K/(2 C q_min)", ["[K]/[2Cq_{min}]"]),
        ("O(e^O(alpha beta)/(alpha beta))", ["O([e^{O(αβ)}]/[αβ])"]),
        ("gap epsilon_1c is", ["ε_{1c}"]),
        ("log(a + ε) ≥ log a + ε/a.", ["log(a+ε)≥loga+[ε]/[a]"]),
        ("(½‖W‖² + ½‖H‖²)/q_min^(1/2).", ["[½‖W‖^{2}+½‖H‖^{2}]/[q_{min}^{[1]/[2]}]"]),
        ("a lambda-strongly convex function", ["λ"]),
        ("epsilon << 1", ["ε≪1"]),
        ("(a)(b)/c_1", ["(a)[b]/[c_{1}]"]),
    ],
)
def test_formulas(text: str, expected: list[str]) -> None:
    assert formulas(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "From the point (7) plain gradient descent never leaves its direction.",
        "10 samples in each of 5 classes, 20 dimensions",
        "The classifier's class is a matter of remark-delta and of taste.",
        "With W and H bounded, a network I know",
        "3 of 3 parts; margin 0.01, 6 seeds [0.02, 0.03]",
        "and/or, either/or",
    ],
)
def test_sentences_stay(text: str) -> None:
    assert "<math" not in typeset(text)


def test_texts_are_escaped() -> None:
    nasty = "<script>alert(x_1)</script> & a_b <img src=x onerror=y>"
    made = typeset(nasty)
    assert "<script" not in made
    assert "<img" not in made
    assert "&amp;" in made


def test_no_word_of_a_claim_is_lost() -> None:
    texts = [one.text for one in claims()] + [one.correct for one in errata()]
    typeset_ones = 0
    for text in texts:
        made = typeset(text)
        typeset_ones += "<math" in made
        ElementTree.fromstring(f"<p>{made}</p>")
        left = re.sub(r"<[^>]*>", "", made)
        long = [word for word in re.findall(r"[a-z]{4,}", text) if word not in ("sqrt", "beta")]
        for word in set(long) - {"alpha", "delta", "epsilon", "lambda", "gamma"}:
            assert left.count(word) == text.count(word), text
    assert typeset_ones > 60
