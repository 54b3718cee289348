"""Forest plots: every effect of an experiment with its interval, beside its margin."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nclab.claims.judging import Effect, weakest
from nclab.claims.verdict import Verdict
from nclab.figures.forest_layout import lay_out_forest
from nclab.figures.picture import EffectRow, Effects, Forest, Picture

COLOURS = {"reproduced": 2, "contradicted": 1, "no effect": 4}
"""By verdict; what is undecided has the first of the palette."""
INCHES = 0.165
"""Of a row."""
CUT = ", which does not set the scale and is cut off at an arrow"
CHOICES = (
    " Where a source leaves open what was done, all choices are judged, and a row is the weakest "
    "part of those that come out alike."
)


def forest(name: str, judged: Sequence[Mapping[str, Any]]) -> list[Picture]:
    """One group a claim, one row a part; no picture without effects.

    A claim that is judged for every choice its source leaves open has one row a verdict instead:
    the weakest part of all choices that come out so.

    Args:
        judged: the claims that the experiment is about, as the ledger gives them.
    """
    groups = tuple(group for row in judged for group in _groups(row))
    if not groups:
        return []
    panel = Forest("", groups, "the opposite of the claim", "as claimed")
    rows, _, depth = lay_out_forest(panel)
    cut = any(any(row.cut) for row in rows)
    open_choices = any(row["numbers"].get("choices") for row in judged)
    return [
        Picture(
            f"{name}_effects",
            "Effects with their 95 % intervals",
            (panel,),
            1,
            "Right of the grey margin a part of a claim is reproduced (green), left of it "
            "contradicted (red), inside there is no effect (yellow) or, where the source itself "
            "states a size, less than it states (red); an interval that crosses an edge is "
            "undecided (blue). Every claim has its own scale. Filled: the recorded evidence; "
            f"hollow: this machine's run{CUT if cut else ''}.{CHOICES if open_choices else ''}",
            (6.6, INCHES * depth + 0.9),
        )
    ]


def _groups(row: Mapping[str, Any]) -> list[Effects]:
    """The effects of a claim, those of one margin together."""
    choices = row["numbers"].get("choices", ())
    recorded = _of_choices(row["numbers"].get("effects") or (), choices)
    own = _of_choices((row.get("here") or {}).get("effects") or (), choices)
    names = list(dict.fromkeys(one["what"] for one in (*recorded, *own)))
    rows = [
        EffectRow(
            name,
            one["estimate"],
            one["low"],
            one["high"],
            COLOURS.get(one["verdict"], 0),
            hollow=effects is own,
        )
        for name in names
        for effects in (recorded, own)
        for one in effects
        if one["what"] == name
    ]
    margins = {one["what"]: one["margin"] for one in (*own, *recorded)}
    title = f"{'ours, ' if row.get('ours') else ''}{row['id'].partition('/')[2]}: {row['verdict']}"
    return [
        Effects(title, margin, tuple(one for one in rows if margins[one.name] == margin))
        for margin in dict.fromkeys(margins[one.name] for one in rows)
    ]


def _of_choices(
    effects: Sequence[Mapping[str, Any]], choices: Iterable[str]
) -> list[Mapping[str, Any]]:
    """All effects; with choices only the weakest of those that share a verdict, with their count.

    >>> up = {"estimate": 2.0, "low": 1.0, "high": 3.0, "margin": 0.0, "seeds": 8}
    >>> down = {**up, "estimate": -2.0, "verdict": "contradicted"}
    >>> up["verdict"] = "reproduced"
    >>> effects = [{"what": f"size {k}, rise", **one} for k, one in enumerate((up, down, down))]
    >>> [one["what"] for one in _of_choices(effects, ("size 0", "size 1", "size 2"))]
    ['reproduced at 1 of 3: size 0, rise', 'contradicted at 2 of 3: size 1, rise']
    """
    found: dict[str, list[Effect]] = {}
    for choice in choices:
        parts = [one for one in effects if one["what"].startswith(f"{choice}, ")]
        if worst := _weakest(
            Effect(**{**one, "verdict": Verdict(one["verdict"])}) for one in parts
        ):
            found.setdefault(worst.verdict.value, []).append(worst)
    of = sum(map(len, found.values()))
    shown = {verdict: (_weakest(parts) or parts[0]).to_dict() for verdict, parts in found.items()}
    return [
        {**one, "what": f"{verdict} at {len(found[verdict])} of {of}: {one['what']}"}
        for verdict, one in shown.items()
    ] or list(effects)


def _weakest(effects: Iterable[Effect]) -> Effect | None:
    known = {one.what: one for one in effects}
    return known[weakest(list(known.values())).numbers["weakest"]] if known else None
