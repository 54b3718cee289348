"""`nclab target`: table, JSON, plot, map and bad arguments."""

import json
from pathlib import Path

import pytest

from tests.cli.runner import call


def test_table_and_json() -> None:
    done = call("target", "--counts", "3x10,3x1", "--weight-decay", "0.02,0.02")
    assert done.code == 0
    assert "with penalties 0.8297525874" in done.out
    done = call("target", "--counts", "3x10,3x1", "--weight-decay", "0.02,0.02", "--json")
    value = json.loads(done.out)
    assert value["objective"] == pytest.approx(0.8297525874)
    assert value["counts"] == [10, 10, 10, 1, 1, 1]
    done = call("target", "--classes", 10, "--norms", "2,2.5", "--json")
    assert json.loads(done.out)["loss"] == pytest.approx(0.034201678)


def test_a_bias_may_be_none() -> None:
    arguments = ("target", "--classes", 4, "--loss", "mse", "--weight-decay", "0.01,0.01", "--json")
    plain, none = call(*arguments), call(*arguments, "--bias", "none")
    assert plain.code == none.code == 0
    assert json.loads(plain.out) == json.loads(none.out)
    assert json.loads(call(*arguments, "--bias", "0").out)["geometry"] == "simplex ETF"


def test_plot(tmp_path: Path) -> None:
    file = tmp_path / "target.png"
    done = call("target", "--counts", "5,5,1", "--weight-decay", "0.01", "--plot", file)
    assert done.code == 0
    assert file.stat().st_size > 1000
    assert f"drew {file}" in " ".join(done.out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--counts", "5,x", "--weight-decay", "0.1"), "got 'x'"),
        (("--classes", "1", "--weight-decay", "0.1"), "at least 2 classes"),
        (("--classes", "3", "--weight-decay", "much"), "numbers in --weight-decay"),
        (("--classes", "3"), "Expected --weight-decay or --norms, got neither"),
        (("--weight-decay", "0.1"), "Expected --classes or --counts, got neither"),
        (("--classes", "3", "--weight-decay=-1"), "Expected weight_decay above 0"),
        (("--classes", "3", "--norms", "1,2,3"), "Expected norms as two numbers"),
        (("--classes", "3", "--norms", "0,2"), "Expected norms=(α, β) above 0"),
        (("--classes", "3", "--norms", "1,2", "--depth", "2"), "with depth=2, got norms"),
        (("--classes", "3", "--norms", "1,2", "--bias", "0.3"), "bias=None (no bias) with norms"),
        (("--classes", "3", "--weight-decay", "1", "--bias", "nan"), "finite number as bias"),
        (
            ("--classes", "3", "--weight-decay", "1", "--focal-gamma", "1"),
            "Expected focal_gamma only with",
        ),
        (("--classes", "3", "--weight-decay", "1", "--features", "x"), "Expected features free"),
        (("--classes", "9", "--weight-decay", "1e-99"), "Expected weight_decay=0, for"),
        (("--classes", "3", "--weight-decay", "nan"), "a finite number as weight_decay"),
        (("--classes", "3", "--weight-decay", "1,2,3"), "Expected weight_decay as two numbers"),
        (("--classes", "3", "--norms", "1"), "Expected norms as two numbers, got 1.0"),
        (("--counts", "5", "--weight-decay", "0.1"), "Expected counts of 2 to 5000 classes"),
        (
            ("--classes", "3", "--weight-decay", "0.1", "--depth", "0"),
            "Expected depth as a number",
        ),
        (("--counts", "0x5,3x1", "--weight-decay", "0.1"), "got '0x5'"),
        (("--counts", "-1x5,3x1", "--weight-decay", "0.1"), "got '-1x5'"),
        (("--counts", "9999999999x5", "--weight-decay", "0.1"), "1 to 5000 classes"),
        (("--counts", "x5,3x1", "--weight-decay", "0.1"), "got 'x5'"),
        (("--counts", "5,nan", "--weight-decay", "0.1"), "got nan for class 1"),
        (
            ("--classes", "3", "--weight-decay", "0.1", "--bias", "much"),
            "--bias as a penalty",
        ),
        (("--classes", "3", "--weight-decay", "0.1", "--dim", "1"), "Expected dim of at least 2"),
        (("--classes", "3", "--weight-decay", "0.1", "--loss", "hinge"), "Expected loss"),
        (("--classes", "3", "--weight-decay", "0.1", "--plot", "no/such/a.png"), "Cannot write"),
        (("--classes", "3", "--weight-decay", "0.1", "--plot", "a.txt"), ".png, .svg or .pdf"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = call("target", *arguments)
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1
    assert message in done.err
