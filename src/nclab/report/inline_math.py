"""Formulas in plain sentences, as claims and errata have them, typeset as MathML.

A terminal shows `epsilon = sqrt(2(1 - beta)/C)` as it stands; a page can do better. Here the
stretches of a text that can only be formulas are found, parsed and written as MathML; all else
stays text. What is unclear is left alone: a word is never taken for a product of letters.
"""

import re
from html import escape
from typing import NamedTuple

GREEK = {"alpha": "α", "beta": "β", "delta": "δ", "epsilon": "ε", "lambda": "λ", "gamma": "γ"}
FUNCTIONS = ("sqrt", "log", "exp", "cos", "max", "min", "argmin", "argmax")
RELATIONS = {"=": "=", "<=": "≤", ">=": "≥", "<<": "≪", "<": "<", ">": ">"}
RELATIONS |= {sign: sign for sign in "≤≥≪"}
THIN = '<mspace width="0.14em"></mspace>'
"""Between the factors of a product."""
ARTICLES = ("a", "A", "I")
"""Letters that are words where a blank is beside them."""
SIGNS = {"+": "+", "-": "−", "−": "−", "·": "·", "/": "/"}
TOKEN = re.compile(
    r"(?P<text>(?!" + "|".join(GREEK) + r")[A-Za-z]{2,}(?:-[A-Za-z]{2,})+|['’][A-Za-z]+)"
    r"|(?P<number>\d+(?:\.\d+)?(?:e-?\d+)?|½)"
    r"|(?P<word>[A-Za-zα-ωΑ-Ω∂∇ΔΣ][\u0300-\u036f]?[A-Za-z]*(?:['′](?![A-Za-z]))?)"
    r"|(?P<sign><=|>=|<<|[=<>≤≥≪+\-−·/])"
    r"|(?P<open>[(\[])|(?P<close>[)\]])|(?P<bar>[|‖])|(?P<mark>[_^])|(?P<comma>,)"
    r"|(?P<root>√)|(?P<raised>[²³ᵀ])|(?P<space> +)|(?P<other>.)",
    re.DOTALL,
)


class Token(NamedTuple):
    """A piece of a text with what it is."""

    kind: str
    text: str
    at: int

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.at + len(self.text)


def typeset(text: str) -> str:
    """A sentence with its formulas as MathML, everything else escaped.

    >>> print(typeset("within epsilon of <b>"))
    within <math><mi>ε</mi></math> of &lt;b&gt;
    >>> print(typeset("the class w_k"))
    the class <math><msub><mi>w</mi><mi>k</mi></msub></math>
    >>> print(typeset("samples in 10 of 20 classes (7)"))
    samples in 10 of 20 classes (7)
    """
    made, done = "", 0
    for start, end in _stretches(_tokens(text)):
        formula = _Parser(_tokens(text[start:end])).whole()
        if formula is not None:
            made += f"{escape(text[done:start])}<math>{formula}</math>"
            done = end
    return made + escape(text[done:])


def _tokens(text: str) -> list[Token]:
    return [Token(str(m.lastgroup), m[0], m.start()) for m in TOKEN.finditer(text)]


def _stretches(tokens: list[Token]) -> list[tuple[int, int]]:
    """Where the text holds a formula: as far as letters, numbers, signs and brackets go."""
    found: list[tuple[int, int]] = []
    run: list[Token] = []
    for token in [*tokens, Token("other", "", -1)]:
        if _mathematical(token, run):
            run.append(token)
            continue
        kept = _trimmed(run)
        if _certain(kept):
            found.append((kept[0].at, kept[-1].end))
        run = []
    return found


def _mathematical(token: Token, run: list[Token]) -> bool:
    if token.kind == "comma":
        depth = sum({"open": 1, "close": -1}.get(one.kind, 0) for one in run)
        return depth > 0
    if token.kind in ("other", "text"):
        return False
    if token.kind != "word":
        return True
    bare = token.text.rstrip("'′")
    marked = bool(run) and run[-1].kind == "mark"  # any name may be an index
    known = bare in GREEK or bare in FUNCTIONS or bool(re.fullmatch(r"[d∂∇Δδ][A-Za-z]", bare))
    return marked or known or len(re.sub("[\u0300-\u036f]", "", bare)) == 1


def _trimmed(run: list[Token]) -> list[Token]:
    """Without blanks at the ends, brackets that have no other half, and what they leave hanging."""
    while run:
        depth, first_open, stray = 0, -1, -1
        for place, token in enumerate(run):
            if token.kind == "open":
                first_open = place if depth == 0 else first_open
                depth += 1
            elif token.kind == "close":
                if depth == 0:
                    stray = place
                    break
                depth -= 1
        if stray >= 0:
            run = run[:stray] if _certain(run[:stray]) else run[stray + 1 :]
        elif depth:
            run = run[:first_open] if _certain(run[:first_open]) else run[first_open + 1 :]
        elif _never_first(run):
            run = run[1:]
        elif _never_last(run):
            run = run[:-1]
        else:
            break
    return run


def _never_first(run: list[Token]) -> bool:
    first = run[0]
    if first.kind in ("space", "comma", "mark") or first.text in (*RELATIONS, "/"):
        return True
    return first.text in ARTICLES and (len(run) == 1 or run[1].kind == "space")


def _never_last(run: list[Token]) -> bool:
    last = run[-1]
    if last.kind in ("space", "sign", "mark", "comma"):
        return True
    return last.text in ARTICLES and run[-2].kind == "space" and not _awaits(run[:-2])


def _awaits(run: list[Token]) -> bool:
    """Whether a formula cannot end here: after a sign or a function comes a letter, no article."""
    return bool(run) and (run[-1].kind == "sign" or run[-1].text in FUNCTIONS)


def _certain(run: list[Token]) -> bool:
    """Whether it can be nothing else: it has a mark, a Greek letter, a function, or a sign."""
    words = [token.text.rstrip("'′") for token in run if token.kind == "word"]
    if not words and not any(token.kind == "root" for token in run):
        return any(token.text == "/" for token in run) and any(t.kind == "open" for t in run)
    if any(token.kind in ("mark", "root", "raised") for token in run):
        return True
    if any(word in GREEK or word in FUNCTIONS or word[0] in GREEK.values() for word in words):
        return True
    return any(token.kind == "sign" for token in run[1:])


class _Parser:
    """Recursive descent: relations over sums over products over powers."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0

    def whole(self) -> str | None:
        """The whole as MathML, None if it is no formula after all."""
        try:
            made = self._row(closing="")
        except ValueError:
            return None
        return made if self.at == len(self.tokens) else None

    def _peek(self, *, skip: bool = True) -> Token | None:
        place = self.at
        while skip and place < len(self.tokens) and self.tokens[place].kind == "space":
            place += 1
        if skip:
            self.at = place
        return self.tokens[place] if place < len(self.tokens) else None

    def _take(self) -> Token:
        token = self._peek()
        if token is None:
            raise ValueError
        self.at += 1
        return token

    def _row(self, closing: str) -> str:
        parts = []
        while (token := self._peek()) is not None and token.text != closing:
            if token.kind == "sign" and token.text != "/":
                sign = RELATIONS.get(token.text) or SIGNS[token.text]
                parts.append(f"<mo>{escape(sign)}</mo>")
                self.at += 1
            elif token.kind == "comma":
                parts.append("<mo>,</mo>")
                self.at += 1
            else:
                parts += [THIN] * bool(parts and not parts[-1].startswith("<mo>"))
                parts.append(self._fraction())
        if not parts:
            raise ValueError
        return parts[0] if len(parts) == 1 else f"<mrow>{''.join(parts)}</mrow>"

    def _fraction(self) -> str:
        left = self._power()
        while (token := self._peek()) is not None and token.text == "/":
            self.at += 1
            left = f"<mfrac>{_bare(left)}{_bare(self._power())}</mfrac>"
        return left

    def _power(self) -> str:
        base = self._atom()
        below = above = ""
        while (token := self._peek(skip=False)) is not None and token.kind in ("mark", "raised"):
            self.at += 1
            if token.kind == "raised":
                above = {"²": "<mn>2</mn>", "³": "<mn>3</mn>", "ᵀ": "<mi>T</mi>"}[token.text]
            elif token.text == "_":
                below = self._index()
            else:
                above = _bare(self._exponent())
        if below and above:
            return f"<msubsup>{base}{below}{above}</msubsup>"
        if below:
            return f"<msub>{base}{below}</msub>"
        return f"<msup>{base}{above}</msup>" if above else base

    def _index(self) -> str:
        token = self._take()
        if token.kind == "number":  # 1c of epsilon_1c
            after = self._peek(skip=False)
            if after is not None and after.kind == "word":
                self.at += 1
                return f"<mrow><mn>{token.text}</mn><mi>{escape(after.text)}</mi></mrow>"
            return f"<mn>{token.text}</mn>"
        if token.kind != "word":
            raise ValueError
        return _name(token.text)

    def _exponent(self) -> str:
        base = self._atom()
        after = self._peek(skip=False)
        if after is not None and after.kind == "open":  # e^O(alpha beta)
            return f"<mrow>{base}{self._atom()}</mrow>"
        return base

    def _atom(self) -> str:
        token = self._take()
        if token.kind == "number":
            return f"<mn>{token.text}</mn>"
        if token.kind == "open":
            inside = self._row(closing={"(": ")", "[": "]"}[token.text])
            end = self._take()
            return f"<mrow><mo>{token.text}</mo>{inside}<mo>{end.text}</mo></mrow>"
        if token.kind == "bar":
            inside = self._row(closing=token.text)
            self._take()
            return f"<mrow><mo>{token.text}</mo>{inside}<mo>{token.text}</mo></mrow>"
        if token.kind == "root" or token.text == "sqrt":
            return f"<msqrt>{_bare(self._power())}</msqrt>"
        if token.text in FUNCTIONS:
            return self._applied(token.text)
        if token.kind != "word":
            raise ValueError
        return _name(token.text)

    def _applied(self, name: str) -> str:
        """A function with what it is of, so that 1/log t is one over all of that."""
        function = f"<mi>{name}</mi>"
        if (token := self._peek(skip=False)) is not None and token.kind in ("mark", "raised"):
            self.at += 1
            mark, under = token, self._index() if token.text == "_" else "<mn>2</mn>"
            function = f"<{'msub' if mark.text == '_' else 'msup'}>{function}{under}"
            function += f"</{'msub' if mark.text == '_' else 'msup'}>"
        token = self._peek()
        if token is None or token.kind in ("sign", "close", "bar"):
            return function
        gap = "" if token.kind == "open" else THIN
        return f"<mrow>{function}{gap}{self._power()}</mrow>"


def _bare(made: str) -> str:
    """Without the outer brackets, which a bar or a root makes needless."""
    inside = re.fullmatch(r"<mrow><mo>\(</mo>(.*)<mo>\)</mo></mrow>", made, re.DOTALL)
    if inside is None:
        return made
    depth = 0
    for bracket in re.findall(r"<mo>([()])</mo>", inside[1]):
        depth += 1 if bracket == "(" else -1
        if depth < 0:  # (a)(b): the first and the last belong to others
            return made
    return f"<mrow>{inside[1]}</mrow>"


def _name(text: str) -> str:
    bare = text.rstrip("'′")
    primes = "′" * (len(text) - len(bare))
    own = f"<mi>{escape(GREEK.get(bare, bare))}</mi>"
    return f"<msup>{own}<mo>{primes}</mo></msup>" if primes else own
