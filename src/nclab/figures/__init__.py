"""Figures as plain data, and the two libraries that draw them: matplotlib and plotly."""

from nclab.figures.matplotlib_renderer import Drawing, draw, plot, save
from nclab.figures.picture import (
    EffectRow,
    Effects,
    Forest,
    HeatMap,
    Panel,
    Picture,
    Reference,
    Series,
    from_json,
    to_json,
)
from nclab.figures.plotly_renderer import PLOTLY_CONFIG, plotly_figure, plotly_spec

__all__ = [
    "PLOTLY_CONFIG",
    "Drawing",
    "EffectRow",
    "Effects",
    "Forest",
    "HeatMap",
    "Panel",
    "Picture",
    "Reference",
    "Series",
    "draw",
    "from_json",
    "plot",
    "plotly_figure",
    "plotly_spec",
    "save",
    "to_json",
]
