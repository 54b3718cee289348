"""The report opens from disk in a real browser, draws everything and requests nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nclab.report.site import write_report
from tests.report.browser import Watched, chromium
from tests.report.folders import CLAIMS, NASTY, PICTURES, reproduced


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def site(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = reproduced(tmp_path_factory.mktemp("site") / "runs")
    return write_report(root).page.parent


@pytest.fixture
def watched(browser: Any) -> Iterator[Watched]:
    found = Watched(browser)
    yield found
    found.context.close()
    assert found.errors == []
    assert [url for url in found.requests if not url.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize("paper", ["pan2023", "ji2022", "other"])
def test_every_figure_is_drawn(site: Path, watched: Watched, paper: str) -> None:
    watched.page.goto((site / "papers" / f"{paper}.html").as_uri())
    names = [
        name for name in PICTURES if name.startswith(paper) or (paper == "other" and name == "tour")
    ]
    count = sum(len(PICTURES[name]) for name in names)
    watched.page.wait_for_function(
        "count => document.querySelectorAll('[data-drawn] .main-svg').length >= count", arg=count
    )
    assert watched.page.locator("[data-figure]").count() == count
    assert watched.page.locator("[data-drawn]").count() == count


def test_a_png_is_made_when_it_is_asked_for(browser: Any, tmp_path: Path) -> None:
    root = reproduced(tmp_path / "runs", runs=0)
    for image in root.glob("*/*.svg"):
        image.with_suffix(".png").write_bytes(b"heavy")
    site = write_report(root).page.parent
    assert not list(site.rglob("*.png"))
    watched = Watched(browser)
    watched.page.goto((site / "papers/pan2023.html").as_uri())
    watched.page.wait_for_selector("[data-png]:not([hidden])")
    with watched.page.expect_download() as download:
        watched.page.click("[data-png]")
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")
    assert download.value.suggested_filename == "pan2023_fig31-bands.png"
    watched.context.close()
    assert watched.errors == []


def test_figures_change_with_the_theme(site: Path, watched: Watched) -> None:
    watched.page.goto((site / "papers" / "pan2023.html").as_uri())
    watched.page.wait_for_selector("[data-drawn]")
    ground = "document.querySelector('.plot').layout.paper_bgcolor"
    assert watched.page.evaluate(ground) == "#FFFFFF"
    watched.page.click("#theme")
    assert watched.page.evaluate(ground) == "#14181D"
    watched.page.reload()
    watched.page.wait_for_selector("[data-drawn]")
    assert watched.page.evaluate(ground) == "#14181D"


def test_claims_are_narrowed(site: Path, watched: Watched) -> None:
    watched.page.goto((site / "claims.html").as_uri())
    rows = watched.page.locator("#claims tbody tr:visible")
    assert rows.count() == len(CLAIMS)
    watched.page.check("[name=verdict][value=refuted]")
    assert rows.count() == 1
    watched.page.check("[name=verdict][value=holds]")
    assert rows.count() == 2
    watched.page.click("button[type=reset]")
    watched.page.select_option("[name=paper]", "ji2022")
    watched.page.wait_for_function(
        "document.getElementById('claim-count').textContent === '3 of 6'"
    )
    watched.page.fill("[name=words]", "SEC-5 ji2022")
    assert rows.count() == 1
    assert "open" in rows.first.inner_text()


def test_the_geometry_plays_and_turns(site: Path, watched: Watched) -> None:
    page = next((site / "runs").glob("fleet-seed-0*.html"))
    watched.page.goto(page.as_uri())
    canvas = "#space canvas"
    watched.page.wait_for_function(f"document.querySelector('{canvas}').dataset.frame === '5'")
    watched.page.click("#space .play")
    watched.page.wait_for_function(f"document.querySelector('{canvas}').dataset.frame === '2'")
    watched.page.click("#space .play")
    assert watched.page.inner_text("#space .moment").startswith("epoch ")
    assert "Exact" in watched.page.inner_text("#space .note")
    turn = watched.page.get_attribute(canvas, "data-turn")
    before = watched.page.screenshot(clip=watched.page.locator(canvas).bounding_box())
    watched.page.locator(canvas).hover()
    watched.page.mouse.down()
    watched.page.mouse.move(500, 300, steps=3)
    watched.page.mouse.up()
    watched.page.wait_for_function(
        f"turn => document.querySelector('{canvas}').dataset.turn !== turn", arg=turn
    )
    after = watched.page.screenshot(clip=watched.page.locator(canvas).bounding_box())
    assert before != after
    assert watched.pixels(canvas) > 500


def test_the_page_of_a_run_draws_everything_and_scrubs(site: Path, watched: Watched) -> None:
    page = next((site / "runs").glob("fleet-seed-1*.html"))
    watched.page.goto(page.as_uri())
    assert watched.page.inner_text("h1") == NASTY
    watched.page.wait_for_function("document.querySelectorAll('#curves canvas').length >= 16")
    for place in range(watched.page.locator("#curves canvas:not(.glass)").count()):
        assert watched.pixels(f"#curves .panel:nth-child({place + 1}) canvas") > 200
    first = watched.page.locator("#cosines canvas").screenshot()
    watched.page.eval_on_selector(
        "#cosines input",
        "slider => { slider.value = 0; slider.dispatchEvent(new Event('input')); }",
    )
    watched.page.wait_for_function(
        "document.querySelector('#cosines .moment').textContent === 'epoch 1'"
    )
    assert watched.page.locator("#cosines canvas").screenshot() != first
    assert watched.page.locator("#certificate tbody tr").count() == 3
    watched.page.select_option("#metric", "max_inter")
    assert watched.page.inner_text("#metric-meaning") == "largest cosine between classes"
    assert watched.page.is_visible("#metric-formula math")
    with watched.page.expect_download() as download:
        watched.page.click("#save-csv")
    assert Path(download.value.path()).read_text().startswith("kind,layer,metric,step,epoch,value")


def test_the_overview_opens_with_the_picture(site: Path, watched: Watched) -> None:
    watched.page.goto((site / "index.html").as_uri())
    watched.page.wait_for_function(
        "document.querySelector('#hero-space canvas').dataset.drawn > 50"
    )
    widths = watched.page.eval_on_selector_all(
        ".gallery img", "images => images.map(one => one.complete)"
    )
    assert len(widths) == 4
    assert NASTY in watched.page.inner_text("#runs")


def test_marks_of_an_axis_are_few_and_at_least_two(site: Path, watched: Watched) -> None:
    watched.page.goto(next((site / "runs").glob("fleet-seed-0*.html")).as_uri())

    def ticks(low: float, high: float, logged: bool, room: float = 150) -> list[float]:
        found = watched.page.evaluate(
            "([a, b, c, d]) => nclab.ticks(a, b, c, d)", [low, high, logged, room]
        )
        return [float(f"{value:.6g}") for value in found]

    assert ticks(9e-5, 1.5, True) == [1e-4, 1e-3, 0.01, 0.1, 1.0]
    assert ticks(0.019, 0.15, True) == [0.02, 0.05, 0.1]
    for low, high in ((1e-30, 1.0), (0.011, 70.0), (1e-8, 3e-4), (0.4, 0.9), (0.5, 1.02)):
        assert 2 <= len(ticks(low, high, True)) <= 6, (low, high)
    assert watched.page.evaluate("nclab.number(1e-4, 3)") == "1e−4"
