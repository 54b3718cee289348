"""Options of a command from dataclasses: each field becomes a flag, its docstring the help.

Importing a config may import torch, which takes seconds. Therefore the options are created when
their command is called, not when the program starts.
"""

import ast
import dataclasses
import inspect
import itertools
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperGroup

from nclab.errors import NclabError
from nclab.text import scientific

Command = Callable[..., None]


class Option(NamedTuple):
    """One field of a config as an option."""

    path: str
    """Path of the field, for example `shape.width`."""
    name: str
    """Name of the command's parameter."""
    kind: Any
    """Type of the field."""
    default: Any
    help: str
    several: bool = False
    """Whether the option accepts several values; separate networks are trained with each value."""

    @property
    def choices(self) -> tuple[str, ...]:
        """Accepted words; empty unless the type is a Literal."""
        is_literal = get_origin(self.kind) is Literal
        return get_args(self.kind) if is_literal else ()

    @property
    def flag(self) -> str:
        """Flag on the command line."""
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True)
class Options:
    """Options for all fields of a config and of the configs inside it.

    >>> from nclab.training.fleet.recipe import Member
    >>> member = Options(Member, "Member", names={"norm": "batch_norm"}, exclude=("seed",))
    >>> [option.flag for option in member.all()]
    ['--batch-norm', '--weight-decay']
    >>> replace(member, values={"batch_norm": "none", "weight_decay": 0.1}).build(seed=2)
    Member(norm='none', weight_decay=0.1, seed=2)
    """

    config: Any
    """Dataclass; the first sentence of a field's docstring is the help of its option."""
    panel: str
    """Heading above the options in the help."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Names of options that differ from the names of their fields, by the path of the field."""
    exclude: Collection[str] = ()
    """Paths of fields that are no options."""
    several: tuple[str, ...] = ()
    """Prefixes of the paths of fields that accept several values; "" for all."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values from the command line by the names of the options."""

    def all(self) -> Iterator[Option]:
        """Yield the options in the order of the fields."""
        for path, kind, default, text in _fields(self.config, self.exclude):
            name = self.names.get(path, path.rpartition(".")[2])
            yield Option(path, name, kind, default, text, path.startswith(self.several))

    def build(self, **known: Any) -> Any:
        """Return the config; if an option has several values, its field gets the first.

        `known` sets fields that have no option.
        """
        values = {option.path: self._values(option)[0] for option in self.all()}
        return _build(self.config, "", values, known)

    def axes(self) -> dict[str, tuple[Any, ...]]:
        """Return the values of the fields for which the user gave several values, by path."""
        values = {option.path: self._values(option) for option in self.all()}
        return {path: several for path, several in values.items() if len(several) > 1}

    def changed(self) -> dict[str, str]:
        """Return the flags of the fields whose value differs from the default, by path."""
        return {
            option.path: option.flag
            for option in self.all()
            if self._values(option) != (option.default,)
        }

    def _values(self, option: Option) -> tuple[Any, ...]:
        return _read_values(option, self.values[option.name])


Configs = Mapping[str, Options]
"""Options of a command's configs by name, with the values from the command line."""


def with_options(find: Callable[[], Configs]) -> Callable[[Command], Command]:
    """Add the options of configs to a command whose first parameter is `Configs`.

    `find` imports the configs. It runs when the command is called.
    """

    def decorate(command: Command) -> Command:
        _, *explicit = inspect.signature(command, eval_str=True).parameters.values()

        def complete() -> Command:
            configs = find()
            parameters: dict[str, Any] = {}
            definitions: dict[str, Any] = {}
            for options in configs.values():
                for option in options.all():
                    # Configs may share an option if only one of them will be built.
                    definition = (option.path, option.kind, option.default)
                    first = definitions.setdefault(option.name, definition)
                    assert first == definition, f"two {option.flag}"
                    parameters.setdefault(option.name, _parameter(option, options.panel))

            def with_values(**values: Any) -> None:
                config_values = {name: values.pop(name) for name in parameters}
                filled = {
                    k: replace(options, values=config_values) for k, options in configs.items()
                }
                command(filled, **values)

            return _with_signature(with_values, command, [*explicit, *parameters.values()])

        def incomplete(**values: Any) -> None:
            complete()(**values)

        vars(incomplete)["complete"] = complete
        return _with_signature(incomplete, command, explicit)

    return decorate


class ConfigGroup(TyperGroup):
    """Group of commands that adds the options of a command's configs when it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name, with all its options."""
        name, command, arguments = super().resolve_command(ctx, args)
        complete = getattr(getattr(command, "callback", None), "complete", None)
        if complete is None:
            return name, command, arguments
        app = typer.Typer(add_completion=False, rich_markup_mode="rich")
        app.command(name=name)(complete())
        return name, typer.main.get_command(app), arguments


def _fields(
    config: Any, exclude: Collection[str], prefix: str = ""
) -> Iterator[tuple[str, Any, Any, str]]:
    """Yield path, type, default and help of every field, including those of nested configs."""
    kinds, texts = get_type_hints(config), _docstrings(config)
    for item in dataclasses.fields(config):
        path, kind = prefix + item.name, kinds[item.name]
        if path in exclude:
            continue
        if dataclasses.is_dataclass(kind):
            yield from _fields(kind, exclude, f"{path}.")
        else:
            sentence, dot, _ = " ".join(texts.get(item.name, "").split()).partition(". ")
            yield path, kind, item.default, (sentence + dot.strip()).replace("[", r"\[")


@cache  # a command asks dozens of times
def _docstrings(config: type) -> Mapping[str, str]:
    """Return the strings below the fields of a dataclass, from its source."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(config))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        line.target.id: str(ast.literal_eval(below.value))
        for line, below in itertools.pairwise(definition.body)
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
    }


def _build(config: Any, prefix: str, values: Mapping[str, Any], known: Mapping[str, Any]) -> Any:
    """Return a config whose fields have the `values` (by path) or the `known` values (by name)."""
    arguments = dict(known)
    for name, kind in get_type_hints(config).items():
        path = prefix + name
        if path in values:
            arguments[name] = values[path]
        elif dataclasses.is_dataclass(kind) and any(p.startswith(f"{path}.") for p in values):
            arguments[name] = _build(kind, f"{path}.", values, {})
    return config(**arguments)


def _parameter(option: Option, panel: str) -> inspect.Parameter:
    """Return the parameter from which typer makes an option.

    Typer reads every value as text, except those of switches; `_read_values` converts the texts.
    """
    kind, default, flags, metavar = option.kind, option.default, [], None
    if kind is bool:
        flags = [option.flag] if default is False else []  # typer adds --no-... if it is true
    else:
        values = default if isinstance(default, tuple) else (default,)
        kind = str if default is not None else str | None
        default = ",".join(map(_text, values)) if default is not None else None
        metavar = _metavar(option)
    about = typer.Option(*flags, help=option.help, rich_help_panel=panel, metavar=metavar)
    annotation: Any = Annotated[kind, about]
    return inspect.Parameter(
        option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _metavar(option: Option) -> str:
    """Return the kind of value in the help, for example <int>, <sgd|adam>,… or <list>/…."""
    if get_origin(option.kind) is tuple:
        return "<list>/…" if option.several else "<list>"
    word = "|".join(option.choices) or _scalar(option.kind).__name__
    return f"<{word}>,…" if option.several else f"<{word}>"


def _scalar(kind: Any) -> Any:
    """Return the type of a single value: for `int | None` and `tuple[int, ...]` it is int."""
    return next((item for item in get_args(kind) if item is not type(None)), kind)


def _text(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return min(scientific(value), f"{value:g}", key=len)


def _read_values(option: Option, text: Any) -> tuple[Any, ...]:
    """Return the values of an option: commas separate values, slashes separate lists."""
    if not isinstance(text, str):  # switches, and options without a value
        return text if isinstance(text, tuple) else (text,)
    if get_origin(option.kind) is tuple:
        lists = text.split("/") if option.several else [text]
        values: tuple[Any, ...] = tuple(_read_words(option, words.split(",")) for words in lists)
    else:
        values = _read_words(option, text.split(",") if option.several else [text])
    if not values:
        raise NclabError(f"Expected at least one value of {option.flag}, got none.")
    if len(set(values)) < len(values):
        raise NclabError(f"Expected {option.flag} without repetition, got {text}.")
    return values


def _read_words(option: Option, words: Sequence[str]) -> tuple[Any, ...]:
    return tuple(_read_word(option, word.strip()) for word in words if word.strip())


def _read_word(option: Option, word: str) -> Any:
    """Convert a word to a number, None or one of the choices."""
    if word == "none" and type(None) in get_args(option.kind):
        return None
    if option.choices and word not in option.choices:
        known = ", ".join(option.choices)
        raise NclabError(f"Expected {option.flag} as one of {known}; got {word!r}.")
    kind = _scalar(option.kind)
    if kind not in (int, float):
        return word
    try:
        return kind(word)
    except ValueError:
        expected = "integers" if kind is int else "numbers"
        raise NclabError(f"Expected {expected} in {option.flag}, got {word!r}.") from None


def _with_signature(
    function: Command, like: Command, parameters: list[inspect.Parameter]
) -> Command:
    """Give a function the docstring of another one, and parameters that typer reads."""
    function.__doc__ = like.__doc__
    function.__annotations__ = {item.name: item.annotation for item in parameters}
    vars(function)["__signature__"] = inspect.Signature(parameters)
    return function
