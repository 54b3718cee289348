"""A command's options from its configs: a field and its docstring are a flag and its help.

A config may import torch, which takes seconds. So these options are made when their command is
called, not when the program starts.
"""

import ast
import dataclasses
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperGroup

from nclab.cli.flags import naming_flags
from nclab.errors import NclabError
from nclab.text import scientific

Command = Callable[..., None]


class Option(NamedTuple):
    """One field as an option."""

    path: str
    """Where the field is, as in `shape.width`."""
    name: str
    """What the parameter of the command is called."""
    kind: Any
    """The type of the field."""
    default: Any
    help: str
    several: bool = False
    """Whether it takes several values, each for networks of their own."""
    more: tuple[str, ...] = ()
    """Words of plugins, beside those that the type names."""

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it takes, where these are known."""
        return (*get_args(self.kind), *self.more)

    @property
    def flag(self) -> str:
        """As it is typed."""
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True)
class Options:
    """An option for every field of a config, and of the configs inside it.

    >>> from nclab.training.fleet.recipe import Member
    >>> member = Options(Member, "Member", names={"norm": "batch_norm"}, leave_out=("seed",))
    >>> [option.flag for option in member.all()]
    ['--batch-norm', '--weight-decay']
    >>> replace(member, given={"batch_norm": "none", "weight_decay": 0.1}).build(seed=2)
    Member(norm='none', weight_decay=0.1, seed=2)
    """

    config: Any
    """A dataclass; the first sentence of a field's docstring is the help of its option."""
    panel: str
    """The heading above the options."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Options that are not called as their field, as in {"shape.width": "neurons"}."""
    leave_out: Collection[str] = ()
    """Fields that are no options, as in ("shape.inputs",)."""
    several: tuple[str, ...] = ()
    """How the paths of fields begin that take several values; "" for all."""
    more: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By path, words of plugins that a field takes beside those of its type."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """What came, by the names of the options."""

    def all(self) -> Iterator[Option]:
        """In the order of the fields."""
        for path, kind, default, about in _fields(self.config, self.leave_out):
            name = self.names.get(path, path.rpartition(".")[2])
            several, more = path.startswith(self.several), self.more.get(path, ())
            yield Option(path, name, kind, default, about, several, more)

    def build(self, **known: Any) -> Any:
        """The config of what was given, and of what is known about the fields left out.

        Of several values it has the first.
        """
        values = {option.path: self._values(option)[0] for option in self.all()}
        return _build(self.config, "", values, known)

    def axes(self) -> dict[str, tuple[Any, ...]]:
        """By path, the fields that were given more than one value."""
        found = {option.path: self._values(option) for option in self.all()}
        return {path: values for path, values in found.items() if len(values) > 1}

    def changed(self) -> dict[str, str]:
        """By path, the flags whose values are not those that the config has by itself."""
        pairs = ((option, self._values(option)) for option in self.all())
        return {option.path: option.flag for option, values in pairs if values != (option.default,)}

    def _values(self, option: Option) -> tuple[Any, ...]:
        """One, or those that commas part."""
        given = self.given[option.name]
        return _several(option, given) if option.several else (_value(option, given),)


Given = Mapping[str, Options]
"""The options of a command's configs by name, with what was given."""


def with_options(find: Callable[[], Mapping[str, Options]]) -> Callable[[Command], Command]:
    """For a command whose first parameter is `Given`; `find` imports its configs."""

    def decorate(command: Command) -> Command:
        _, *own = inspect.signature(command, eval_str=True).parameters.values()

        def complete() -> Command:
            options = find()
            derived: dict[str, Any] = {}
            meant: dict[str, Any] = {}
            for group in options.values():
                for option in group.all():
                    # Configs may share an option, of which only one will be built.
                    what = (option.path, option.kind, option.default)
                    assert meant.setdefault(option.name, what) == what, f"two {option.flag}"
                    derived.setdefault(option.name, _parameter(option, group.panel))

            def whole(**values: Any) -> None:
                found = {name: values.pop(name) for name in derived}
                given = {name: replace(one, given=found) for name, one in options.items()}
                with naming_flags(flags_of(given)):
                    command(given, **values)

            return _signed(whole, command, [*own, *derived.values()])

        def listed(**values: Any) -> None:
            complete()(**values)

        vars(listed)["complete"] = complete
        return _signed(listed, command, own)

    return decorate


def flags_of(given: Given) -> dict[str, str]:
    """The flag of every field of a command's configs, by what it and its option are called.

    Of two fields of one name the first.
    """
    flags: dict[str, str] = {}
    for options in given.values():
        for option in options.all():
            for name in (option.path.rpartition(".")[2], option.name):
                flags.setdefault(name, option.flag)
    return flags


class ConfigGroup(TyperGroup):
    """Commands, whose options from configs are made once they are called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments name, with all its options."""
        name, command, rest = super().resolve_command(ctx, args)
        complete = getattr(getattr(command, "callback", None), "complete", None)
        if complete is None:
            return name, command, rest
        app = typer.Typer(add_completion=False, rich_markup_mode="rich")
        app.command(name=name)(complete())
        return name, typer.main.get_command(app), rest


def _fields(
    config: Any, leave_out: Collection[str], prefix: str = ""
) -> Iterator[tuple[str, Any, Any, str]]:
    """Path, type, default and help of everything in a config that is not itself a config."""
    kinds, about = get_type_hints(config), docstrings(config)
    for one in dataclasses.fields(config):
        path, kind = prefix + one.name, kinds[one.name]
        if path in leave_out:
            continue
        if dataclasses.is_dataclass(kind):
            yield from _fields(kind, leave_out, f"{path}.")
        else:
            yield path, kind, one.default, _first_sentence(about.get(one.name, ""))


def _build(config: Any, prefix: str, values: Mapping[str, Any], known: Mapping[str, Any]) -> Any:
    """A config from the values of paths, the configs inside it too where there are some."""
    own = dict(known)
    for name, kind in get_type_hints(config).items():
        path = prefix + name
        if path in values:
            own[name] = values[path]
        elif dataclasses.is_dataclass(kind) and any(one.startswith(f"{path}.") for one in values):
            own[name] = _build(kind, f"{path}.", values, {})
    return config(**own)


@cache  # reads and parses a file, for each of which a command asks dozens of times
def docstrings(config: type) -> Mapping[str, str]:
    """The strings below the fields of a dataclass, which Python does not keep."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(config))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        line.target.id: inspect.cleandoc(below.value.value)
        for line, below in itertools.pairwise(definition.body)
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(below.value.value, str)
    }


def _first_sentence(text: str) -> str:
    whole = " ".join(text.split())
    return re.split(r"(?<=\.) ", whole, maxsplit=1)[0].replace("[", r"\[")


def _parameter(option: Option, panel: str) -> inspect.Parameter:
    """What typer makes the option from."""
    kind, default = option.kind, option.default
    flags = [option.flag] if default is False else []  # what is true may be denied, --no-...
    shape = None
    if option.several and kind is not bool:
        kind, default, shape = _typed_list(option)
    elif get_origin(kind) is tuple:
        kind, default = str, ",".join(map(_written, default))
    elif get_origin(kind) is Literal:
        choices: Any = StrEnum  # mypy knows no classes that are made while the program runs
        kind = choices(option.name, {value: value for value in get_args(kind)})
        default = kind(default)
    about = typer.Option(*flags, help=option.help, rich_help_panel=panel, metavar=shape)
    how: Any = {"default": default, "annotation": Annotated[kind, about]}
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, **how)


def _typed_list(option: Option) -> tuple[Any, str | None, str]:
    """Type, default and look of an option that takes several values."""
    if option.default is None:
        return str | None, None, f"<{_scalar(option.kind).__name__}>,…"
    if get_origin(option.kind) is tuple:
        return str, ",".join(map(_written, option.default)), "<list>/…"
    if get_origin(option.kind) is Literal:
        return str, option.default, f"<{'|'.join(option.choices)}>,…"
    return str, _written(option.default), f"<{_scalar(option.kind).__name__}>,…"


def _scalar(kind: Any) -> Any:
    """The type of a field that may also be None."""
    return next((one for one in get_args(kind) if one is not type(None)), kind)


def _written(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return min(scientific(value), f"{value:g}", key=len)


def _value(option: Option, given: Any) -> Any:
    """What the field gets: plain values, and tuples from what commas part."""
    if isinstance(given, Enum):
        return given.value
    if get_origin(option.kind) is not tuple:
        return given
    kind = get_args(option.kind)[0]
    return tuple(_read(part, kind, option.flag) for part in _parts(given, ","))


def _several(option: Option, given: Any) -> tuple[Any, ...]:
    """The values that commas part; lists are parted by slashes."""
    if not isinstance(given, str):
        return given if isinstance(given, tuple) else (given,)
    kind = option.kind
    if get_origin(kind) is tuple:
        values: tuple[Any, ...] = tuple(_value(option, part) for part in given.split("/"))
    elif get_origin(kind) is Literal:
        values = tuple(_parts(given, ","))
        for value in values:
            if value not in option.choices:
                known = ", ".join(option.choices)
                raise NclabError(f"Expected {option.flag} among {known}; got {value!r}.")
    else:
        empty = {"none": None} if type(None) in get_args(kind) else {}
        values = tuple(
            empty[part] if part in empty else _read(part, _scalar(kind), option.flag)
            for part in _parts(given, ",")
        )
    if not values:
        raise NclabError(f"Expected a value or more of {option.flag}, got none.")
    if len(set(values)) < len(values):
        raise NclabError(f"Expected {option.flag} without repetition, got {given}.")
    return values


def _parts(given: str, between: str) -> list[str]:
    return [part.strip() for part in given.split(between) if part.strip()]


def _read(part: str, kind: Any, flag: str) -> Any:
    """A word, or the number that it is."""
    if kind not in (int, float):
        return part
    try:
        return kind(part)
    except ValueError:
        what = "integers" if kind is int else "numbers"
        raise NclabError(f"Expected {what} in {flag}, got {part!r}.") from None


def _signed(function: Command, like: Command, parameters: list[inspect.Parameter]) -> Command:
    """The function with the words of another and parameters for typer to read."""
    function.__doc__ = like.__doc__
    function.__annotations__ = {one.name: one.annotation for one in parameters}
    vars(function)["__signature__"] = inspect.Signature(parameters)
    return function
