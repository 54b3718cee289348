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


def panel(picture: Picture, index: int = 0) -> Panel:
    """Return one panel of a picture."""
    panel = picture.panels[index]
    assert isinstance(panel, Panel)
    return panel


def claims_of(module: ModuleType) -> list[Claim]:
    """Return the claims in a module."""
    return [value for value in vars(module).values() if isinstance(value, Claim)]


CLAIMS = [claim for module in (*TRAINED.values(), guarantees) for claim in claims_of(module)]
"""Claims about experiments of the thesis."""
