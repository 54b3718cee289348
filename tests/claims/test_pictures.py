"""Forest plots have a group per claim and a row per part, for recorded and local effects."""

from typing import Any

from nclab.claims.effects import Part
from nclab.claims.judging import judge_effects, judge_settings
from nclab.claims.pictures import forest
from nclab.figures.picture import Forest, from_json, to_json


def row(**more: Any) -> dict[str, Any]:
    steps = [Part(name, {seed: 0.2 + 0.01 * seed for seed in range(8)}) for name in ("a", "b")]
    finding = judge_effects(steps, margin=0.01)
    return {"id": "pan2023/x", **finding.to_dict(), **more}


def test_every_part_has_its_interval_and_its_name() -> None:
    [picture] = forest("pan2023_x", [row(), {"id": "y", "numbers": {}, "verdict": "open"}])
    [panel] = picture.panels
    assert isinstance(panel, Forest)
    [group] = panel.groups
    assert (group.title, group.margin) == ("x: reproduced", 0.01)
    assert [row.name for row in group.rows] == ["a", "b"]
    first = group.rows[0]
    assert first.low is not None
    assert first.high is not None
    assert first.low < first.estimate < first.high
    assert from_json(to_json(picture)) == picture


def test_local_effects_are_hollow_rows() -> None:
    here = {"effects": judge_effects([Part("a", {0: 0.1})], margin=0.01).numbers["effects"]}
    [picture] = forest("pan2023_x", [row(here=here)])
    panel = picture.panels[0]
    assert isinstance(panel, Forest)
    rows = panel.groups[0].rows
    assert [(row.name, row.hollow) for row in rows] == [("a", False), ("a", True), ("b", False)]
    assert rows[1].low is None  # one seed has no interval


def test_choices_with_one_verdict_share_a_row() -> None:
    up, down = (
        judge_effects([Part("a", {s: sign + 0.01 * s for s in range(8)})]) for sign in (1, -1)
    )
    finding = judge_settings({"size 1": up, "size 10": down, "size 2": up})
    here = {"effects": judge_settings({"size 1": up}).numbers["effects"]}
    [picture] = forest("x", [{"id": "p/x", **finding.to_dict(), "here": here}])
    panel = picture.panels[0]
    assert isinstance(panel, Forest)
    rows = {row.name: row.hollow for row in panel.groups[0].rows}
    assert rows == {
        "reproduced at 2 of 3: size 1, a": False,
        "contradicted at 1 of 3: size 10, a": False,
        "reproduced at 1 of 1: size 1, a": True,
    }
    assert "leaves a choice open" in picture.caption


def test_parts_are_grouped_by_margin() -> None:
    first, second = row(), judge_effects([Part("c", {0: 1.0, 1: 1.1})], margin=0.5)
    first["numbers"]["effects"] += second.numbers["effects"]
    [picture] = forest("x", [first])
    panel = picture.panels[0]
    assert isinstance(panel, Forest)
    drawn = [(group.margin, [row.name for row in group.rows]) for group in panel.groups]
    assert drawn == [(0.01, ["a", "b"]), (0.5, ["c"])]


def test_no_effects_no_picture() -> None:
    assert forest("tour", []) == []


def test_findings_of_ours_are_labelled() -> None:
    [picture] = forest("x", [row(ours=True)])
    panel = picture.panels[0]
    assert isinstance(panel, Forest)
    assert panel.groups[0].title == "ours, x: reproduced"


def test_the_caption_explains_arrows() -> None:
    values = dict(enumerate((-9.0, 9.0) * 3))
    wide = judge_effects([Part("a", values)], margin=0.01).numbers["effects"]
    [picture] = forest("x", [row(here={"effects": wide})])
    assert "An arrow marks" in picture.caption
    [picture] = forest("x", [row()])
    assert "An arrow" not in picture.caption
