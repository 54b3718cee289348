"""Runs can be sorted, filtered, grouped, exported and linked in a real browser."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from nclab.report.site import write_report
from tests.report.browser import Watched, chromium
from tests.report.sweeps import DECAYS, EPOCHS, NORMS, sweep, trained
from tests.report.test_server import Live

SERIES = "nclab.comparing.charts[{}].chart.view.series.filter(one => !one.quiet)"
NAMES = "Array.from(document.querySelectorAll('#runs tbody tr')).map(row => row.dataset.run)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sweep(tmp_path_factory.mktemp("compared") / "runs")


@pytest.fixture(scope="module", params=["written", "live"])
def address(root: Path, browser: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "written":
        yield (write_report(root).page.parent / "runs.html").as_uri()
        return
    server = Live(root)
    yield f"http://127.0.0.1:{server.port}/"
    server.stop()


@pytest.fixture
def watched(browser: Any, address: str) -> Iterator[Watched]:
    found = Watched(browser)
    found.page.goto(address)
    found.until("window.nclab?.comparing?.charts.length && " + SERIES.format(0) + ".length > 5")
    yield found
    found.context.close()
    assert found.errors == []


def series(watched: Watched, chart: int = 0) -> dict[str, dict[str, Any]]:
    found = watched.page.evaluate(SERIES.format(chart))
    return {one["label"]: one for one in found}


def test_runs_of_two_settings_have_bands_over_seeds(watched: Watched) -> None:
    found = series(watched)
    one = found["norm affine, weight_decay 0.001 (2 runs)"]
    assert one["x"] == list(EPOCHS)
    assert one["y"] == pytest.approx([epoch / 10 + 0.01 for epoch in EPOCHS])
    assert one["low"] == pytest.approx([epoch / 10 for epoch in EPOCHS])
    assert one["high"] == pytest.approx([epoch / 10 + 0.02 for epoch in EPOCHS])
    assert len(found) == 6
    assert "2 failed, dead or not finite are left out" in watched.page.inner_text("#compare-words")


SWATCHES = """Array.from(document.querySelectorAll("#runs tbody tr")).map(
  row => [row.dataset.run.split("-")[0], row.querySelector(".swatch").style.borderTopColor])"""


def test_rows_have_the_colours_of_their_groups_at_once(watched: Watched) -> None:
    shown = [tuple(one) for one in watched.page.evaluate(SWATCHES)]
    colours = {norm: {colour for name, colour in shown if name == norm} for norm in NORMS}
    assert [len(own) for own in colours.values()] == [1, 1]
    assert colours["affine"] != colours["none"]


def test_runs_that_were_measured_once_are_drawn_against_a_setting(
    browser: Any, tmp_path: Path
) -> None:
    root = trained(tmp_path / "runs", EPOCHS[-1:])
    watched = Watched(browser)
    watched.page.goto((write_report(root).page.parent / "runs.html").as_uri())
    watched.until("window.nclab?.comparing?.charts.length && " + SERIES.format(0) + ".length")
    assert watched.page.input_value("#x") == "weight_decay"
    assert watched.page.is_checked("#logx")
    assert {name: one["x"] for name, one in series(watched).items()} == {
        "norm affine": list(DECAYS),
        "norm none": list(DECAYS),
    }
    watched.page.select_option("#x", "epoch")  # what one chooses is kept
    watched.page.reload()
    watched.until("window.nclab?.comparing?.charts.length && " + SERIES.format(0) + ".length > 5")
    assert watched.page.input_value("#x") == "epoch"
    watched.context.close()
    assert watched.errors == []


def test_a_metric_is_drawn_against_a_setting(watched: Watched) -> None:
    page = watched.page
    page.select_option("#x", "weight_decay")
    found = series(watched)
    assert set(found) == {"norm affine", "norm none"}
    assert found["norm none"]["x"] == list(DECAYS)
    assert found["norm none"]["y"] == pytest.approx([-0.79] * 3)
    assert found["norm none"]["low"] == pytest.approx([-0.8] * 3)
    assert page.is_checked("#logx")
    assert page.evaluate("nclab.comparing.charts[0].chart.view.xLog")
    page.select_option("#x", "norm")
    watched.until("nclab.comparing.charts[0].chart.view.xNames")
    assert page.evaluate("nclab.comparing.charts[0].chart.view.xNames") == ["affine", "none"]
    assert set(series(watched)) == {f"weight_decay {decay:g}" for decay in (1e-3, 1e-2)} | {
        "weight_decay 1e−4"
    }


def test_logarithms_say_when_they_cannot(watched: Watched) -> None:
    page = watched.page
    page.check("#logy")
    watched.until("!document.querySelector('.chart-note').hidden")
    assert "Logarithmic y leaves out 12 of 24 values" in page.inner_text(".chart-note")
    page.fill("#run-filter", "norm=none")
    watched.until("document.querySelector('.chart-note').textContent.includes('stays linear')")
    page.select_option("#x", "norm")
    page.check("#logx")
    watched.until("document.querySelector('.chart-note').textContent.includes('no logarithm')")


def test_rows_are_sorted_and_narrowed(watched: Watched) -> None:
    page = watched.page
    page.click("[data-column=loss] button")
    assert page.get_attribute("[data-column=loss]", "aria-sort") == "ascending"
    assert page.evaluate(NAMES)[-1] == "monitored"  # what is not there is last both ways
    page.click("[data-column=loss] button")
    assert page.evaluate(NAMES)[-1] == "monitored"
    assert "-1-" in page.evaluate(NAMES)[0]
    assert page.evaluate("document.activeElement.textContent") == "loss"
    page.fill("#run-filter", "affine weight_decay>=1e-3 seed=1")
    assert len(page.evaluate(NAMES)) == 2
    assert page.inner_text("#run-count") == "2 of 14 runs"
    page.fill("#run-filter", "health=dead")
    assert page.evaluate(NAMES) == ["dead"]
    page.fill("#run-filter", "")
    assert len(page.evaluate(NAMES)) == 14


def test_what_is_wrong_with_a_run_is_seen(watched: Watched) -> None:
    page = watched.page
    assert "dead" in page.inner_text("[data-run=dead] .health")
    ill = page.locator("[data-run=monitored] .health").all_inner_texts()
    assert ill == ["not finite", "1 alarm"]
    assert page.locator("tr.ill").count() == 8  # without batch norm none converged


def test_the_address_holds_the_whole_view(watched: Watched) -> None:
    page = watched.page
    page.select_option("#x", "weight_decay")
    page.select_option("#colour", "seed")
    page.check("#logy")
    page.click("#add-metric")
    page.click("[data-column=max_inter] button")
    page.fill("#run-filter", "affine")
    page.click("summary")
    page.check(".choices input[value=records]")
    page.uncheck(".choices input[value=accuracy]")
    page.uncheck("#runs tbody tr:first-child input")
    before = page.evaluate(
        "[nclab.comparing.state, nclab.comparing.charts.map(one => one.chart.view.series.length)]"
    )
    rows, heads = page.evaluate(NAMES), page.locator("#runs thead").inner_text()
    assert "records" in heads
    assert "accuracy" not in heads
    page.reload()
    watched.until("window.nclab?.comparing?.charts.length === 2")
    watched.until("nclab.comparing.charts[0].chart.view.series.length")
    after = page.evaluate(
        "[nclab.comparing.state, nclab.comparing.charts.map(one => one.chart.view.series.length)]"
    )
    assert after == before
    assert page.evaluate(NAMES) == rows
    assert page.locator("#runs thead").inner_text() == heads


def test_the_pointer_reads_all_curves_at_a_place(watched: Watched) -> None:
    page = watched.page
    box = page.locator("#compare canvas").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 40, box["y"] + 60)
    watched.until("!document.querySelector('.chart-tip').hidden")
    words = page.inner_text(".chart-tip")
    assert words.startswith("epoch 8")
    assert page.locator(".tip-row").count() == 6
    assert "0.81" in words
    page.mouse.move(1, 1)
    watched.until("document.querySelector('.chart-tip').hidden")
    page.focus("#compare canvas")
    page.keyboard.press("ArrowRight")
    watched.until("document.querySelector('.chart-tip').textContent.startsWith('epoch 1')")


def test_smoothing_begins_where_the_curve_does(watched: Watched) -> None:
    page = watched.page
    assert page.evaluate("nclab.smooth([2, null, 4, 0], 0.5)") == [
        2,
        None,
        pytest.approx(10 / 3),
        pytest.approx(10 / 7),
    ]
    page.eval_on_selector(
        "#smooth", "bar => { bar.value = 0.5; bar.dispatchEvent(new Event('input')); }"
    )
    first = series(watched)["norm affine, weight_decay 0.001 (2 runs)"]
    assert first["y"][0] == pytest.approx(0.11)
    assert first["y"][-1] < 0.81


def test_figure_and_table_are_saved(watched: Watched, tmp_path: Path) -> None:
    page = watched.page
    page.click("#add-metric")
    watched.until(SERIES.format(1) + ".length > 5")

    def saved(button: str) -> Path:
        with page.expect_download() as download:
            page.click(button)
        return Path(download.value.path())

    rows = list(csv.DictReader(saved("#save-csv").read_text().splitlines()))
    assert set(rows[0]) == {"panel", "series", "x", "y", "low", "high"}
    assert len({row["panel"] for row in rows}) == 2
    assert len(rows) == 2 * 6 * len(EPOCHS)
    drawing = ElementTree.fromstring(saved("#save-svg").read_text())
    words = [one.text for one in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert "min_intra" in words
    assert "epoch" in words
    assert saved("#save-png").read_bytes().startswith(b"\x89PNG")
    table = list(csv.DictReader(saved("#table-csv").read_text().splitlines()))
    assert len(table) == 14
    assert table[0]["norm"] == "affine"
    assert {row["health"] for row in table} == {"", "dead", "not converged", "not finite"}


def test_the_page_of_a_run_shows_its_alarms(browser: Any, root: Path, tmp_path: Path) -> None:
    site = write_report(root, tmp_path / "out").page.parent
    watched = Watched(browser)
    page = watched.page
    page.goto((site / "runs/monitored.html").as_uri())
    watched.until("document.querySelectorAll('#curves canvas').length")
    (row,) = page.locator("#alarms tbody tr").all_inner_texts()
    assert row.split("\t") == [
        *("2", "not finite", "fc", "45 features hold nan or infinity", "aeroplane")
    ]
    assert "1 alarms" in page.get_attribute("#curves canvas", "aria-label")
    assert page.locator(".lead .health").all_inner_texts() == ["not finite", "1 alarm"]
    assert watched.errors == []
    watched.context.close()


def test_marks_near_collapse_differ(watched: Watched) -> None:
    def words(values: list[float]) -> list[str]:
        found = watched.page.evaluate("values => nclab.tickWords(values)", values)
        assert len(set(found)) == len(values), found
        return [str(one) for one in found]

    assert words([0.0, 0.5, 1.0]) == ["0", "0.5", "1"]
    assert words([0.9999996, 0.9999998, 1.0]) == ["1−4e−7", "1−2e−7", "1"]
    assert words([-0.333336, -0.333334, -0.333332]) == ["−0.333336", "−0.333334", "−0.333332"]
    assert words([1.00001e-7, 1.00002e-7])
    assert words([123456, 123457])


def test_points_that_stand_alone_and_places_that_were_tried_are_seen(watched: Watched) -> None:
    drawn = """([x, y, xTicks]) => {
      const box = document.body.appendChild(document.createElement("div"));
      const chart = nclab.chart(box, {series: [{label: "a", x, y}], xTicks});
      const pen = nclab.svgPen(300, 200);
      const made = chart.paint(pen, 300, 200);
      box.remove();
      return [made.xTicks, (pen.text().match(/a2\\.4 2\\.4/g) || []).length / 2];
    }"""

    def look(x: list[float], y: list[float | None], ticks: list[float] | None = None) -> list[Any]:
        found: list[Any] = watched.page.evaluate(drawn, [x, y, ticks])
        return found

    places = [float(n) for n in range(20)]
    alone = [None if n in (9, 11) else 1.0 for n in range(20)]
    assert look(places, alone)[1] == 1
    assert look(places, [1.0] * 20)[1] == 0
    assert look([0.05], [1.0]) == [[0.05], 1]
    assert look([16.0, 32.0], [1.0, 2.0], [16.0, 32.0]) == [[16, 32], 2]
