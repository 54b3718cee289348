"""Printed pages and pages on a phone show everything: folded parts, charts, long names."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nclab.records import open_run
from nclab.report.site import write_report
from tests.report.browser import Watched, chromium
from tests.report.folders import reproduced

DRAWN = "canvas => canvas.toDataURL()"
NARROW = 390
LONG = "a_name_that_is_much_longer_than_a_narrow_page_is_wide_whatever_the_font"
OUTSIDE = """() => Array.from(document.querySelectorAll("main *")).filter(one => {
  const box = one.getBoundingClientRect();
  return box.width && box.right > innerWidth + 1 && !one.closest(".scroll, [data-figure], .unseen");
}).map(one => one.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def site(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = reproduced(tmp_path_factory.mktemp("printed") / "runs", runs=1)
    with open_run(root / LONG, kind="fleet", config={}) as run:
        run.finish()
    return write_report(root).page.parent


def test_folded_parts_and_dark_charts_are_printed(browser: Any, site: Path) -> None:
    watched = Watched(browser, color_scheme="dark")
    page = watched.page
    page.goto(next((site / "runs").glob("fleet-seed-0*.html")).as_uri())
    watched.until("document.querySelectorAll('#curves canvas').length >= 8")
    page.wait_for_timeout(300)
    canvas = "#curves canvas:not(.glass)"
    dark = page.eval_on_selector(canvas, DRAWN)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.eval_on_selector(canvas, DRAWN) != dark
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert '"weight_decay": 0.005' in page.inner_text("details pre")
    page.emulate_media(media="screen")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert not page.evaluate("document.querySelector('details').open")
    page.wait_for_timeout(100)
    assert page.eval_on_selector(canvas, DRAWN) == dark
    watched.context.close()
    assert watched.errors == []


def test_figures_are_laid_out_for_paper_before_it_is_printed(browser: Any, site: Path) -> None:
    watched = Watched(browser)
    [page, *_] = [
        one for one in (site / "papers").glob("*.html") if "data-figure" in one.read_text()
    ]
    watched.page.goto(page.as_uri())
    watched.until("document.querySelectorAll('[data-drawn]').length > 0")
    widths = """event => {
      window.dispatchEvent(new Event(event));
      return Array.from(document.querySelectorAll(".plot .main-svg"), one => one.clientWidth);
    }"""
    watched.page.evaluate(widths, "beforeprint")  # draws what is further down, too
    watched.until(
        "document.querySelectorAll('[data-drawn]').length === "
        "document.querySelectorAll('[data-figure]').length"
    )
    watched.page.evaluate(widths, "afterprint")
    wide = watched.page.evaluate(widths, "nothing")
    assert max(wide) > 680
    assert max(watched.page.evaluate(widths, "beforeprint")) <= 680
    assert watched.page.evaluate(widths, "afterprint") == wide
    watched.context.close()
    assert watched.errors == []


def test_a_long_name_fits_a_telephone(browser: Any, site: Path) -> None:
    watched = Watched(browser)
    watched.page.set_viewport_size({"width": NARROW, "height": 800})
    watched.page.goto(next((site / "runs").glob("a_name*")).as_uri())
    watched.page.wait_for_timeout(300)
    wide = watched.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= NARROW, watched.page.evaluate(OUTSIDE)
    watched.context.close()
    assert watched.errors == []
