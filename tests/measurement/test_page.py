"""A measurement becomes a figure and a page."""

import re
from typing import Any

import pytest
import torch

import nclab

GENERATOR = torch.Generator().manual_seed(0)
LABELS = torch.arange(60) % 3
FEATURES = torch.nn.functional.one_hot(LABELS).double() + 0.2 * torch.randn(
    60, 3, generator=GENERATOR, dtype=torch.float64
)
COLLAPSE = nclab.measure_features(FEATURES, LABELS, weight=3 * torch.eye(3, dtype=torch.float64))


class Named(torch.nn.Module):
    """A network with a layer whose name could be markup."""

    def __init__(self) -> None:
        super().__init__()
        self.add_module("<b>", torch.nn.Linear(3, 6))
        self.act = torch.nn.ReLU()
        self.head = torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.act(self.get_submodule("<b>")(x)))


def report(layers: list[str]) -> nclab.measurement.Report:
    return nclab.measure(Named().double(), [(FEATURES, LABELS)], layers=layers)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A measurement of arrays, of one layer and of two as pages."""
    path = tmp_path_factory.mktemp("pages") / "page.html"
    every: list[Any] = [COLLAPSE, report(["act"]), report(["<b>", "act"])]
    result = []
    for measured in every:
        measured.to_html(path)
        result.append(path.read_text())
    return result


def test_plot_gives_a_figure_and_its_panels() -> None:
    figure, axes = COLLAPSE.plot()
    assert len(axes) == 3
    assert all(axis.figure is figure for axis in axes)
    shown = axes[1].lines[0].get_ydata()
    torch.testing.assert_close(torch.tensor(shown), COLLAPSE.intra_cosine.cpu())
    _, axes = report(["<b>", "act"]).plot(dark=True)
    assert axes[0].get_title(loc="left") == "cosines"


def test_a_page_is_one_small_file_with_everything(pages: list[str]) -> None:
    for page in pages:
        assert page.count("data:image/svg+xml;base64,") == 2
        assert "min_intra" in page
        assert len(page) < 500_000
        assert not re.search(r'(src|href)="(?!data:)', page)
        assert "<script" not in page
        assert "<b>" not in page


def test_a_page_of_one_layer_says_what_its_numbers_mean(pages: list[str]) -> None:
    _, one_layer, two_layers = pages
    assert "<h1>Neural collapse of layer act</h1>" in one_layer
    assert "smallest mean cosine within a class" in one_layer
    assert "Layers: 1 = &lt;b&gt;, 2 = act." in two_layers
