"""`nclab certify` with numbers, with a file and with weight decay."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from nclab.cli.main import app
from nclab.errors import DataError

NUMBERS = ["certify", "--classes", "10", "--alpha", "2.2", "--beta", "2.3", "--loss", "0.03204"]
KEYS = {
    "optimal_loss",
    "excess_loss",
    "alignment_lower",
    "intra_lower",
    "inter_upper",
    "thesis_intra_lower",
    "thesis_inter_upper",
    "fraction",
}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


def run_json(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def test_numbers() -> None:
    value = run_json(*NUMBERS, "--delta", "0.1")
    assert set(value) >= KEYS
    assert value["fraction"] == pytest.approx(0.9)
    assert value["inter_upper"] < 0


def test_none_is_null() -> None:
    arguments = [*NUMBERS[:-1], "0.035"]
    assert run_json(*arguments)["inter_upper"] is None


def test_table_in_words() -> None:
    text = run(*NUMBERS).stdout
    assert "guaranteed" in text
    assert "In every class" in text


def test_counts() -> None:
    """With counts, loss and alpha are means over samples, and counts set the classes."""
    explanation = (
        "certify",
        "--counts",
        "3x10,3x1",
        "--alpha",
        "2",
        "--beta",
        "1",
        "--loss",
        "0.3",
    )
    value = run_json(*explanation)
    assert value["count_aware"]["optimal_loss"] == pytest.approx(0.26746353, abs=1e-8)
    assert value["num_classes"] == 6
    with pytest.raises(DataError, match="got -1 for class 1"):
        run("certify", "--counts", "5,-1", "--alpha", "2", "--beta", "1", "--loss", "0.3")


def test_file(tmp_path: Path) -> None:
    weight = 3 * (np.eye(4) - 0.25)
    labels = np.repeat(np.arange(4), 5)
    rng = np.random.default_rng(0)
    features = weight[labels] + 0.01 * rng.normal(size=(20, 4))
    file = tmp_path / "network.npz"
    np.savez(file, features=features, labels=labels, weight=weight, bias=[0.0, 0.01, 0.0, 0.0])
    value = run_json("certify", str(file))
    assert set(value) >= KEYS
    assert len(value["class_intra_lower"]) == 4
    assert value["intra_lower"] <= value["measured"]["min_intra"]
    assert "measured" in run("certify", str(file)).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["certify"],
        ["certify", "--classes", "10"],
        ["certify", "--classes", "10", "--alpha", "2.2"],
        ["certify", "nothing.npz"],
        ["certify", "nothing.npz", "--classes", "10"],
        [*NUMBERS[:-1], "0.01"],
        [*NUMBERS, "--delta", "2"],
    ],
)
def test_bad_input_is_one_line(arguments: list[str]) -> None:
    with pytest.raises(DataError, match=r"^[^\n]+$"):
        run(*arguments)


def test_help_has_examples() -> None:
    assert "nclab certify --classes 10 --alpha 2.2" in run("certify", "--help").stdout
