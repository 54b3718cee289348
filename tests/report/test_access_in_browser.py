"""axe finds no serious problem on any page, and no page is wider than a phone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import nclab
from nclab.report.site import write_report
from tests.report.browser import Watched, chromium
from tests.report.folders import reproduced
from tests.report.sweeps import sweep
from tests.report.test_server import Live

AXE = Path(__file__).parents[2] / "tools/node_modules/axe-core/axe.min.js"
SERIOUS = ("serious", "critical")
BOTH = ("light", "dark")
RUN = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations.flatMap(
  found => found.nodes.map(node => [found.impact, found.id, node.html.slice(0, 160)]))"""
WIDTH = "document.documentElement.scrollWidth"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def sites(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("access")
    return [
        write_report(reproduced(folder / "papers")).page.parent,
        write_report(sweep(folder / "sweep")).page.parent,
    ]


def pages(sites: list[Path]) -> Iterator[str]:
    """Return one page of every kind."""
    for site in sites:
        yield from (page.as_uri() for page in sorted(site.glob("*.html")))
        yield from (page.as_uri() for page in sorted((site / "papers").glob("*.html")))
    yield next((sites[0] / "runs").glob("fleet-seed-0*.html")).as_uri()
    yield (sites[1] / "runs/monitored.html").as_uri()


def serious(watched: Watched, address: str, schemes: tuple[str, ...] = ("light",)) -> list[Any]:
    watched.page.goto(address)
    found = []
    for scheme in schemes:
        watched.page.emulate_media(color_scheme=scheme)
        watched.page.wait_for_timeout(400)  # figures are drawn
        watched.page.evaluate(AXE.read_text())
        found += [[address, scheme, *one] for one in watched.page.evaluate(RUN)]
    return [one for one in found if one[2] in SERIOUS]


@pytest.mark.skipif(not AXE.is_file(), reason="tools/pages has not brought axe")
def test_axe_finds_nothing_serious(browser: Any, sites: list[Path]) -> None:
    watched = Watched(browser)
    found = [one for address in pages(sites) for one in serious(watched, address, BOTH)]
    watched.context.close()
    assert found == []


@pytest.mark.skipif(not AXE.is_file(), reason="tools/pages has not brought axe")
def test_nor_on_the_page_of_a_measurement(browser: Any, tmp_path: Path) -> None:
    labels = torch.arange(3).repeat(8)
    features = torch.eye(3)[labels] + 0.1 * torch.randn(24, 3)
    measured = nclab.measure_features(features, labels, weight=torch.eye(3))
    measured.to_html(tmp_path / "collapse.html")
    watched = Watched(browser)
    found = serious(watched, (tmp_path / "collapse.html").as_uri(), BOTH)
    watched.context.close()
    assert found == []


@pytest.mark.skipif(not AXE.is_file(), reason="tools/pages has not brought axe")
def test_nor_on_the_live_page(browser: Any, tmp_path: Path) -> None:
    server = Live(sweep(tmp_path / "runs"))
    watched = Watched(browser)
    try:
        for page in ("", "index.html", "runs/monitored.html"):
            assert serious(watched, f"http://127.0.0.1:{server.port}/{page}", BOTH) == []
    finally:
        watched.context.close()
        server.stop()


def test_nothing_is_wider_than_a_phone(browser: Any, sites: list[Path]) -> None:
    watched = Watched(browser)
    watched.page.set_viewport_size({"width": 390, "height": 800})
    wide = []
    for address in pages(sites):
        watched.page.goto(address)
        watched.page.wait_for_timeout(200)
        if watched.page.evaluate(WIDTH) > 390:
            wide.append(address)
    watched.context.close()
    assert wide == []
