"""Forest plots: every effect of an experiment with its interval, beside its margin."""

from collections.abc import Mapping, Sequence
from typing import Any

from nclab.figures.picture import Panel, Picture, Reference, Series

RECORDED, HERE = 0, 1
"""Colours."""
COLUMNS = 3
TICKS = 12
"""No more parts than these are numbered below a panel."""


def forest(name: str, judged: Sequence[Mapping[str, Any]]) -> list[Picture]:
    """One panel a claim, one point a part; no picture without effects.

    Args:
        judged: the claims that the experiment is about, as the ledger gives them.
    """
    panels = tuple(panel for row in judged if (panel := _panel(row)) is not None)
    if not panels:
        return []
    return [
        Picture(
            f"{name}_effects",
            "Effects with their 95 % intervals",
            panels,
            min(COLUMNS, len(panels)),
            "Above the upper dashed line a claim is reproduced, below the lower one contradicted, "
            "between them there is no effect, or one smaller than a source states that itself "
            "states a size; an interval that crosses a line is undecided. "
            + " ".join(_key(row) for row in judged if _names(row)),
        )
    ]


def _panel(row: Mapping[str, Any]) -> Panel | None:
    effects, own = _effects(row)
    names = _names(row)
    if not names:
        return None
    margin = (effects or own)[0]["margin"]
    return Panel(
        f"{row['id'].partition('/')[2]}: {row['verdict']}",
        "",
        "effect",
        tuple(
            _series(label, kind, colour, names)
            for label, kind, colour in (("recorded", effects, RECORDED), ("here", own, HERE))
            if kind
        ),
        references=tuple(
            Reference("margin" if sign > 0 else "", y=sign * margin)
            for sign in ((1, -1) if margin else (1,))
        ),
        x_ticks=tuple(float(place) for place in range(len(names))),
        x_names=tuple(
            "" if place % -(-len(names) // TICKS) else str(place + 1) for place in range(len(names))
        ),
    )


def _effects(row: Mapping[str, Any]) -> tuple[list[Any], list[Any]]:
    """Those of the recorded evidence, and those of this machine's runs."""
    own = (row.get("here") or {}).get("effects")
    return list(row["numbers"].get("effects") or ()), list(own or ())


def _names(row: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(one["what"] for kind in _effects(row) for one in kind))


def _key(row: Mapping[str, Any]) -> str:
    """What the numbers below a panel stand for."""
    parts = "; ".join(f"{place} {name}" for place, name in enumerate(_names(row), start=1))
    return f"{row['id'].partition('/')[2]}: {parts}."


def _series(
    label: str, effects: Sequence[Mapping[str, Any]], colour: int, names: Sequence[str]
) -> Series:
    """The points of one kind of evidence, a little to the side of the others."""
    return Series(
        label,
        [names.index(one["what"]) + 0.16 * colour for one in effects],
        [one["estimate"] for one in effects],
        [one["estimate"] if one["low"] is None else one["low"] for one in effects],
        [one["estimate"] if one["high"] is None else one["high"] for one in effects],
        colour=colour,
        style="none",
        marker="hollow" if colour == HERE else "filled",
    )
