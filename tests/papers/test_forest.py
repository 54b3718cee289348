"""Forest plots: one panel a claim, one point a part, recorded and here side by side."""

from typing import Any

from nclab.figures.picture import Panel
from nclab.papers.forest import forest
from nclab.papers.judging import Part, judge_effects


def row(**more: Any) -> dict[str, Any]:
    steps = [Part(name, {seed: 0.2 + 0.01 * seed for seed in range(8)}) for name in ("a", "b")]
    finding = judge_effects(steps, margin=0.01)
    return {"id": "pan2023/x", **finding.to_dict(), **more}


def test_every_part_has_its_interval_and_its_name() -> None:
    [picture] = forest("pan2023_x", [row(), {"id": "y", "numbers": {}}])
    [panel] = picture.panels
    assert isinstance(panel, Panel)
    assert panel.x_names == ("1", "2")
    assert "x: 1 a; 2 b." in picture.caption
    assert [one.y for one in panel.references] == [0.01, -0.01]
    [recorded] = panel.series
    assert recorded.low is not None
    assert recorded.high is not None
    assert recorded.low[0] < recorded.y[0] < recorded.high[0]  # type: ignore[operator]


def test_what_this_machine_found_stands_beside_it() -> None:
    here = {"effects": judge_effects([Part("a", {0: 0.1})], margin=0.01).numbers["effects"]}
    [picture] = forest("pan2023_x", [row(here=here)])
    panel = picture.panels[0]
    assert isinstance(panel, Panel)
    assert [one.label for one in panel.series] == ["recorded", "here"]
    assert panel.series[1].low == panel.series[1].y  # one seed has no interval


def test_no_effects_no_picture() -> None:
    assert forest("tour", []) == []
