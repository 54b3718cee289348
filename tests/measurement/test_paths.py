"""Number of nclab files whose code runs when a small model is measured and printed."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import nclab

MOST_FILES_TO_PRINT = 12
MOST_FILES_TO_MEASURE = 40


def files_run(function: Callable[[], Any]) -> tuple[Any, set[str]]:
    """Return the result of a function, and the nclab files whose functions it calls."""
    files: set[str] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and "/src/nclab/" in code.co_filename and code.co_name != "<module>":
            files.add(code.co_filename.rpartition("/src/")[2])

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        return function(), files
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("with_test", [False, True])
def test_few_files_run(with_test: bool) -> None:
    net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))
    loader = [(torch.randn(20, 2), torch.arange(20) % 2)]
    test = loader if with_test else None
    measure = nclab.measure  # imports its modules, which is not counted
    report, measured = files_run(lambda: measure(net, loader, test=test))
    text, printed = files_run(lambda: str(report))
    assert "Collapsed" in text or "collapsed" in text or "No class structure" in text
    assert len(printed) <= MOST_FILES_TO_PRINT, sorted(printed)
    assert not [file for file in printed if "theory" in file], "printing computes no optimum"
    assert len(measured) <= MOST_FILES_TO_MEASURE + with_test, sorted(measured)
