"""Which legend a picture has: one for all panels, or one for each."""

from typing import Any

from nclab.figures.picture import Panel, Picture


def shares_legend(picture: Picture) -> bool:
    """Whether one legend serves all panels: no look has two labels and no label two looks.

    >>> from nclab.figures.picture import Series
    >>> one, other = (Panel(t, "x", "y", (Series(t, [1], [1]),)) for t in ("slope 1", "slope 2"))
    >>> shares_legend(Picture("p", "", (one, one))), shares_legend(Picture("p", "", (one, other)))
    (True, False)
    """
    looks: dict[Any, str] = {}
    labels: dict[str, Any] = {}
    for panel in picture.panels:
        for one in panel.series if isinstance(panel, Panel) else ():
            look = (one.colour, one.style, one.marker)
            if not one.label:
                continue
            if looks.setdefault(look, one.label) != one.label:
                return False
            if labels.setdefault(one.label, look) != look:
                return False
    return True
