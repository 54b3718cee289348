"""A real browser without a window, and a page that remembers its errors."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

INKED = """canvas => {
  const pen = canvas.getContext("2d");
  const data = pen.getImageData(0, 0, canvas.width, canvas.height).data;
  let inked = 0;
  for (let place = 3; place < data.length; place += 4) if (data[place]) inked++;
  return inked;
}"""


@contextmanager
def chromium() -> Iterator[Any]:
    """Return a browser, or skip the test if there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Watched:
    """A page with all its errors and all its requests."""

    def __init__(self, browser: Any, **context: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1200, "height": 900}, **context)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._hear)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def until(self, truth: str) -> None:
        """Wait until an expression is true; the page forbids playwright's function."""
        for _ in range(300):
            if self.page.evaluate(f"() => Boolean({truth})"):
                return
            self.page.wait_for_timeout(100)
        raise AssertionError(f"never came true: {truth}")

    def pixels(self, selector: str) -> int:
        """Return the number of drawn pixels of a canvas."""
        return int(self.page.eval_on_selector(selector, INKED))
