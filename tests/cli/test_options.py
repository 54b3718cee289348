"""Options of commands from configs."""

import re
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer

from nclab.cli import sweep
from nclab.cli.main import app
from nclab.cli.options import ConfigGroup, Configs, Options, with_options
from nclab.errors import NclabError
from nclab.training.data.artificial import ConicHull, Teacher
from nclab.training.data.fashion_mnist import FashionMNIST
from nclab.training.data.samples import SampleFile
from nclab.training.data.selection import SampleSelection
from nclab.training.fleet import Recipe
from nclab.training.models.mlp import Shape
from nclab.training.sweep import SweepConfig
from tests.cli.runner import call

NOT_OPTIONS = {"shape", "recipe", "selection", "data", "cones", "path"}
"""Fields that are no options: nested configs, and values that cannot be typed."""
RENAMED = {"norms": "norm", "weight_decays": "weight_decay"}


@dataclass(frozen=True)
class Inner:
    """A config inside another."""

    size: int = 3
    """How large. Or how small."""
    quick: bool = False
    """Whether to hurry [not always]."""
    careful: bool = True
    """Whether to look twice."""


@dataclass(frozen=True)
class Outer:
    """A config."""

    inner: Inner = field(default_factory=Inner)
    """Nested config."""
    rates: tuple[float, ...] = (1e-4, 0.25)
    """First
    rates."""
    seeds: tuple[int, ...] = (0,)
    """Seeds."""
    order: Literal["up", "down"] = "up"
    """Direction."""
    most: int | None = None
    """The most, if any."""
    secret: Any = None


def run(*arguments: str, names: dict[str, str] | None = None) -> tuple[Outer, list[str]]:
    """Return the config and the changed flags of a command with these arguments."""
    calls: list[Any] = []

    @with_options(lambda: {"it": Options(Outer, "It", names or {}, exclude=("secret",))})
    def command(
        configs: Configs, out: Annotated[Path, typer.Option(help="Where.")] = Path()
    ) -> None:
        """Build the config."""
        calls.append((configs["it"].build(secret=7), [*configs["it"].changed().values()]))

    program = typer.Typer(cls=ConfigGroup, rich_markup_mode="rich")
    program.command(name="do")(command)
    program.command(name="other")(lambda: None)
    program(["do", *arguments], standalone_mode=False)
    return calls[0] if calls else (Outer(), [])


def test_options_default_to_the_config() -> None:
    assert run() == (Outer(secret=7), [])


def test_values_are_built_into_the_config() -> None:
    arguments = "--size 4 --quick --no-careful --rates 1,2e-1 --seeds 3, --order down --most 5"
    config, changed = run(*arguments.split())
    inner = Inner(size=4, quick=True, careful=False)
    assert config == Outer(inner, (1.0, 0.2), (3,), "down", 5, secret=7)
    assert type(config.order) is str
    assert changed == [word for word in arguments.replace("no-", "").split() if word[:2] == "--"]
    assert run("--dim", "9", names={"inner.size": "dim"})[0].inner.size == 9


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        (("--rates", "big"), "Expected numbers in --rates, got 'big'."),
        (("--seeds", "0.5"), "Expected integers in --seeds, got '0.5'."),
    ],
)
def test_values_of_a_wrong_type_are_one_line(arguments: tuple[str, ...], pattern: str) -> None:
    with pytest.raises(NclabError, match=re.escape(pattern)):
        run(*arguments)


def test_help_is_the_first_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    run("--help")
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for arguments in ("How large. [default: 3]", "Whether to hurry [not always].", "First rates."):
        assert arguments in text
    assert "[default: 1e-4,0.25]" in text
    assert "<up|down>" in text
    assert "small" not in text
    assert "--secret" not in text


def test_two_fields_may_not_share_a_flag() -> None:
    with pytest.raises(AssertionError, match="two --most"):
        run(names={"inner.size": "most"})


def test_every_field_of_a_sweep_is_an_option() -> None:
    flags = set(re.findall(r"--[a-z0-9-]+", call("sweep", "--help").out))
    kinds = (ConicHull, SampleFile, Teacher, FashionMNIST)
    for config in (SweepConfig, Shape, Recipe, SampleSelection, *kinds):
        for item in fields(config):
            name = RENAMED.get(item.name, item.name).replace("_", "-")
            flags_of_field = {f"--{name}", f"--teacher-{name}", f"--data-{name}"}
            assert item.name in NOT_OPTIONS or flags & flags_of_field, item.name
    assert {"--layers", "--measure", "--seeds", "--data-seed", "--data", "--out"} <= flags


def test_default_options_build_the_default_config() -> None:
    groups = sweep._configs()
    values: dict[str, Any] = {}
    for group in groups.values():
        for option in group.all():
            plain = option.default
            values[option.name] = ",".join(map(str, plain)) if isinstance(plain, tuple) else plain
    groups = {name: replace(group, values=values) for name, group in groups.items()}
    data = groups["teacher"].build()
    assert (data, groups["conic"].build()) == (Teacher(), ConicHull())
    assert groups["sweep"].build(data=data) == SweepConfig()


def test_config_options_are_added_when_the_command_is_called() -> None:
    group: Any = typer.main.get_command(app)
    assert "epochs" not in {option.name for option in group.commands["sweep"].params}
