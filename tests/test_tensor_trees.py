"""A monitor's state survives its file, and a damaged file is named."""

from pathlib import Path

import pytest

import nclab
from nclab.tensor_trees import read_tree, write_tree
from tests.monitor.loops import batches, network


def test_a_monitor_goes_on_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "state"
    with nclab.Monitor(network(norm=False), preset="full") as whole:
        for number, (inputs, labels) in enumerate(batches()):
            whole.observe(labels)
            whole.model(inputs)
            if number == 2:
                write_tree(file, whole.state_dict())
        whole.epoch_end()
    with nclab.Monitor(network(norm=False), preset="full") as again:
        again.load_state_dict(read_tree(file))
        for inputs, labels in batches()[3:]:
            again.observe(labels)
            again.model(inputs)
        again.epoch_end()
    for ours, theirs in zip(again.history.rows, whole.history.rows, strict=True):
        assert ours["samples"] == theirs["samples"] == 60
        assert ours["cdnv"] == pytest.approx(theirs["cdnv"], rel=1e-10)


def test_layers_of_any_name_survive(tmp_path: Path) -> None:
    state = {"layers": {"tensor": {"tensor": [1, None, "x"]}}, "empty": {}}
    write_tree(tmp_path / "state", state)
    assert read_tree(tmp_path / "state") == state


@pytest.mark.parametrize("content", [b"", b"not tensors", b"\x08" + bytes(7) + b"{}      "])
def test_a_damaged_file_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(nclab.NclabError, match=r"state of a measurement in .*state, got a damaged"):
        read_tree(tmp_path / "state")
