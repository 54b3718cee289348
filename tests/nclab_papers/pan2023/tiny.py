"""The experiments of chapter 3 at a size that trains in seconds."""

from types import ModuleType

from nclab.claims.claim import Claim
from nclab.figures.picture import Panel, Picture
from nclab_papers.pan2023 import complexity, conjectures, fig31, fig33, guarantees, norms
from nclab_papers.pan2023.networks import Networks

TINY = Networks(
    samples=160, width=24, epochs=20, batch=40, moments=1, inputs=6, classes=3, workers=0
)
DECAYS = (1e-3, 1e-2)
TRAINED = {
    "pan2023_fig31": fig31,
    "pan2023_fig33": fig33,
    "pan2023_norms": norms,
    "pan2023_complexity": complexity,
    "pan2023_conjectures": conjectures,
}


def panel(picture: Picture, place: int = 0) -> Panel:
    """One panel of a picture."""
    found = picture.panels[place]
    assert isinstance(found, Panel)
    return found


def claims_of(module: ModuleType) -> list[Claim]:
    """The claims in a module."""
    return [value for value in vars(module).values() if isinstance(value, Claim)]


CLAIMS = [claim for module in (*TRAINED.values(), guarantees) for claim in claims_of(module)]
"""Every claim about an experiment of the thesis."""
