"""Threads and tiny numbers are the caller's again afterwards, also after an error."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch

from nclab.threads import no_denormals, one_thread


def tiny() -> bool:
    """Whether there are numbers below the smallest with a full mantissa."""
    return bool(torch.tensor(2e-38) / 4 > 0)


@pytest.mark.parametrize("before", [True, False])
def test_tiny_numbers_come_back_only_where_they_were(before: bool) -> None:
    torch.set_flush_denormal(not before)
    try:
        with no_denormals():
            assert not tiny()
        assert tiny() is before
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("context", [no_denormals, one_thread])
def test_an_error_leaves_all_as_it_was(
    context: Callable[[], AbstractContextManager[None]],
) -> None:
    threads = torch.get_num_threads()
    with pytest.raises(KeyError), context():
        raise KeyError
    assert tiny()
    assert torch.get_num_threads() == threads
