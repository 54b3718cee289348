"""A measurement of shards that never finishes its second pass, so that a test can kill it."""

import sys
import time
from pathlib import Path
from typing import Any

import nclab
from nclab.measurement import shards as module
from tests.clouds import cloud


def never_again(report: Any, shards: Any, plan: Any) -> Any:
    """Fail if the first pass runs although its parts are stored."""
    raise AssertionError("The first round was run again.")


never_again.__name__ = "first_round"  # the work that it stands for


def stuck(report: Any, shards: list[str], plan: Any, *means: Any) -> Any:
    """Report that the second pass has started, and wait."""
    Path(shards[0]).parents[1].joinpath("second").touch()
    time.sleep(600)


stuck.__name__ = "second_round"


if __name__ == "__main__":
    data, folder = cloud(), Path(sys.argv[1])
    from tests.measurement import stuck_driver  # where workers find it

    setattr(module, "second_round", stuck_driver.stuck)  # noqa: B010
    options: dict[str, Any] = {"engine": sys.argv[2], "workers": 2, "keep": folder / "kept"}
    nclab.measure_shards(folder / "shards", data.weight, data.bias, **options)
