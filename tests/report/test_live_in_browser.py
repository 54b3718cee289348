"""The live page grows, pauses, goes back in time and compares in a real browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nclab.records import open_run
from tests.report.browser import Watched, chromium
from tests.report.folders import NASTY, reproduced
from tests.report.test_server import Live

LAST = "nclab.live.chart.view.series[0].x.slice(-1)[0]"


def measurement(step: int) -> dict[str, object]:
    layers = [{"layer": name, "min_intra": step / 10} for name in ("first", "second")]
    return {"kind": "measurement", "step": step, "epoch": step, "layers": layers}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def live(browser: Any, tmp_path: Path) -> Iterator[Live]:
    server = Live(tmp_path)
    yield server
    server.stop()


def test_it_grows_pauses_and_goes_back(browser: Any, live: Live) -> None:
    watched = Watched(browser)
    page = watched.page
    with open_run(live.root / "one", kind="fleet", config={}, seed=0, name=NASTY) as run:
        run.append(measurement(1))
        run.append(measurement(2))
        page.goto(f"http://127.0.0.1:{live.port}/")
        watched.until(
            f"window.nclab && nclab.live && nclab.live.chart.view.series.length && {LAST} === 2"
        )
        assert page.inner_text(".run-name") == NASTY
        assert page.inner_text("#status") == "1 runs, 1 running"
        run.append(measurement(3))
        watched.until(f"{LAST} === 3")
        page.click("#pause")
        run.append(measurement(4))
        page.wait_for_timeout(1500)
        assert page.evaluate(LAST) == 3
        page.click("#pause")
        watched.until(f"{LAST} === 4")
        page.select_option("#layer", "every")
        watched.until("nclab.live.chart.view.series.length === 2")
        page.eval_on_selector(
            "#scrub", "bar => { bar.value = 500; bar.dispatchEvent(new Event('input')); }"
        )
        assert page.inner_text("#until") == "epoch 2"
        assert page.evaluate("nclab.live.chart.view.until") == 2
    watched.context.close()
    assert watched.errors == []
    here = (f"http://127.0.0.1:{live.port}/", "data:")
    assert all(url.startswith(here) for url in watched.requests)


def test_long_names_are_shown_to_their_end(browser: Any, live: Live) -> None:
    watched = Watched(browser)
    name = "teacher3_L15_w64_affine_wd1e-2_s0_7dae7d9d"  # decay and seed tell runs apart
    with open_run(live.root / name, kind="fleet", config={}, seed=0) as run:
        run.append(measurement(1))
        watched.page.goto(f"http://127.0.0.1:{live.port}/")
        watched.until("document.querySelectorAll('.run-name').length === 1")
        cut = "span => span.scrollWidth > span.clientWidth && span.clientWidth > 0"
        style = "span => getComputedStyle(span).textOverflow"
        assert not watched.page.eval_on_selector(".run-name", cut)
        assert watched.page.eval_on_selector(".run-name", style) == "clip"
    watched.context.close()


def test_a_page_opened_before_the_first_measurement_fills(browser: Any, live: Live) -> None:
    watched = Watched(browser)
    page = watched.page
    with open_run(live.root / "one", kind="fleet", config={}, seed=0) as run:
        page.goto(f"http://127.0.0.1:{live.port}/")
        watched.until("document.querySelectorAll('#runs tbody tr').length === 1")
        run.append({**measurement(1), "zeta": 1.0})
        watched.until(f"nclab.live.chart.view.series.length && {LAST} === 1")
        assert page.input_value("#metric") == "min_intra"
        run.append(measurement(2))
        watched.until(f"{LAST} === 2")
    watched.context.close()
    assert watched.errors == []


def test_runs_are_chosen_and_opened(browser: Any, tmp_path: Path) -> None:
    server = Live(reproduced(tmp_path / "runs"))
    watched = Watched(browser, color_scheme="dark")
    page = watched.page
    try:
        page.goto(f"http://127.0.0.1:{server.port}/")
        watched.until("window.nclab && nclab.live && nclab.live.chart.view.series.length === 2")
        page.uncheck("#runs tbody tr:first-child input[type=checkbox]")
        assert page.evaluate("nclab.live.chart.view.series.length") == 1
        page.fill("#run-filter", "nothing like it")
        assert page.locator("#runs tbody tr").count() == 0
        page.fill("#run-filter", "")
        page.click("#runs tbody tr:first-child a")
        page.wait_for_selector("#space canvas")
        watched.until("document.querySelectorAll('#curves canvas').length >= 8")
        page.goto(f"http://127.0.0.1:{server.port}/papers/pan2023.html")
        page.wait_for_selector("[data-drawn] .main-svg")
    finally:
        watched.context.close()
        server.stop()
    assert watched.errors == []


def test_the_page_of_a_run_grows(browser: Any, live: Live) -> None:
    watched = Watched(browser)
    page = watched.page
    with open_run(live.root / "one", kind="fleet", config={}, seed=0) as run:
        run.append(measurement(1))
        page.goto(f"http://127.0.0.1:{live.port}/runs/one.html")
        watched.until("nclab.run && nclab.run.tables[0].epoch.length === 1")
        page.wait_for_timeout(700)
        run.append(measurement(2))
        watched.until("nclab.run.tables[0].epoch.length === 2")
        assert page.evaluate("nclab.changes.open()")
        page.evaluate("window.dispatchEvent(new Event('pagehide'))")
        assert not page.evaluate("nclab.changes.open()")
        run.append(measurement(3))
        page.evaluate("window.dispatchEvent(new Event('pageshow'))")
        watched.until("nclab.run.tables[0].epoch.length === 3")
        assert not page.is_visible("#alarms")
        seen = {"name": "dead features", "layer": "second", "classes": [1], "message": "half zero"}
        run.append({"kind": "alarm", "step": 3, "epoch": 3.0, "value": 0.5, "severe": True, **seen})
        watched.until("document.querySelector('#alarms tbody tr')")
        row = ["3", "dead features", "second", "half zero", "1"]
        assert page.inner_text("#alarms tbody tr").split("\t") == row
        assert page.locator(".lead .health").all_inner_texts() == ["1 alarm"]
        run.finish()
    watched.until("nclab.run.state === 'finished' && !nclab.changes.open()")
    asked = len([url for url in watched.requests if "api/changes" in url])
    page.reload()
    watched.until("nclab.run && nclab.page")
    page.wait_for_timeout(300)
    assert len([url for url in watched.requests if "api/changes" in url]) == asked
    watched.context.close()
    assert watched.errors == []
