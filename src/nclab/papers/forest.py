"""Forest plots: every effect of an experiment with its interval, beside its margin."""

from collections.abc import Mapping, Sequence
from typing import Any

from nclab.figures.forest_rows import laid_out
from nclab.figures.picture import EffectRow, Effects, Forest, Picture

COLOURS = {"reproduced": 2, "contradicted": 1, "no effect": 4}
"""By verdict; what is undecided has the first of the palette."""
INCHES = 0.165
"""Of a row."""


def forest(name: str, judged: Sequence[Mapping[str, Any]]) -> list[Picture]:
    """One group a claim, one row a part; no picture without effects.

    Args:
        judged: the claims that the experiment is about, as the ledger gives them.
    """
    groups = tuple(group for row in judged if (group := _group(row)).rows)
    if not groups:
        return []
    panel = Forest("", groups, "the opposite of the claim", "as claimed")
    depth = laid_out(panel)[2]
    return [
        Picture(
            f"{name}_effects",
            "Effects with their 95 % intervals",
            (panel,),
            1,
            "Right of the grey margin a part of a claim is reproduced (green), left of it "
            "contradicted (red), inside there is no effect, or one smaller than a source states "
            "that itself states a size (yellow); an interval that crosses an edge is undecided "
            "(blue). Every claim has its own scale. Filled: the recorded evidence; hollow: this "
            "machine's run.",
            (6.6, INCHES * depth + 0.9),
        )
    ]


def _group(row: Mapping[str, Any]) -> Effects:
    recorded = list(row["numbers"].get("effects") or ())
    own = list((row.get("here") or {}).get("effects") or ())
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
    margin = (recorded or own or [{"margin": 0.0}])[0]["margin"]
    return Effects(f"{row['id'].partition('/')[2]}: {row['verdict']}", margin, tuple(rows))
