"""Options and output that several commands share."""

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nclab.errors import DataError, NclabError
from nclab.text import WIDTH, fit_to_width, printable

if TYPE_CHECKING:
    from rich.table import Table

    from nclab.engine import Engine
    from nclab.records.read import SkippedPath

MOST_SEEDS = 1000
COUNTS_HELP = "Samples of every class: 10,10,1,1 or 5x100,5x1 (five classes of 100, five of 1)."

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
RunsArgument = Annotated[Path, typer.Argument(metavar="RUNS", help="A run, or a folder with runs.")]


class EngineName(StrEnum):
    """Names of engines."""

    local = "local"
    ray = "ray"


EngineOption = Annotated[
    EngineName, typer.Option(help="Where to compute: the cores of this machine, or a Ray cluster.")
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        help="Ray cluster, host:port; by default a running cluster, else this machine.",
        show_default=False,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        metavar="<int>",
        help="Number of processes, by default one per core; 0 uses this process.",
        min=0,
    ),
]


@contextmanager
def open_engine(name: EngineName, address: str | None) -> "Iterator[Engine]":
    """Yield an engine by its name; disconnect from its cluster at the end."""
    if name is EngineName.local:
        if address is not None:
            raise NclabError(f"Expected --address only with --engine ray, got {address!r}.")
        from nclab.engine import LOCAL

        yield LOCAL
        return
    from nclab.engine.ray import Cluster

    with Cluster(address) as cluster:
        yield cluster


def print_json(value: Any) -> None:
    """Print one JSON value; raise for numbers that are not finite."""
    utf8 = "utf" in (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    typer.echo(json.dumps(value, allow_nan=False, ensure_ascii=not utf8))


def print_table(*renderables: Any) -> None:
    """Print tables and texts as wide as the terminal, or `WIDTH` letters if stdout is a file.

    Texts are printed without rich's markup, because a folder may have a name such as runs[/x].
    """
    from rich.console import Console

    console = Console(markup=False, emoji=False)
    if not sys.stdout.isatty():
        console = Console(width=max(WIDTH, console.width), markup=False, emoji=False)
    for renderable in renderables:
        console.print(fit_to_width(renderable, console))


def text_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    colours: Mapping[str, Mapping[str, str]] | None = None,
    fold: Collection[str] = (),
    right: Collection[str] = (),
) -> "Table":
    """Return a table of texts; control characters, which files may contain, are replaced.

    Args:
        colours: for each coloured column, the style of its texts.
        fold: columns whose long texts continue on the next line.
        right: columns that are aligned to the right.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style="bold")
    for name in headings:
        overflow: Any = "fold" if name in fold else "ellipsis"
        table.add_column(name, overflow=overflow, justify="right" if name in right else "left")
    styles = [(colours or {}).get(name, {}) for name in headings]
    for row in rows:
        cells = zip(row, styles, strict=True)
        table.add_row(*(Text(printable(text), style.get(text, "")) for text, style in cells))
    return table


def print_skipped(skipped: "Iterable[SkippedPath]") -> None:
    """Print on standard error why files and folders were skipped."""
    for item in skipped:
        typer.echo(printable(f"nclab: {item.reason}"), err=True)


def check_runs_folder(folder: Path) -> None:
    """Raise unless the folder exists."""
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "does not exist"
        raise DataError(f"Expected a folder with runs, but {folder} {problem}.")


def read_counts(text: str) -> list[float]:
    """Return the class counts of an option such as 10,10,1 or 2x10,1.

    >>> read_counts("2x10,1")
    [10.0, 10.0, 1.0]
    """
    from nclab.theory.targets.setting import MOST_CLASSES

    counts: list[float] = []
    for part in text.split(","):
        repeats, cross, number = part.rpartition("x")
        try:
            count, classes = float(number), int(repeats) if cross else 1
        except ValueError:
            raise DataError(
                f"Expected --counts as 10,10,1 or 2x10,1, got {part.strip()!r}."
            ) from None
        if not 1 <= classes <= MOST_CLASSES:
            raise DataError(
                f"Expected 1 to {MOST_CLASSES} classes before the x of --counts, "
                f"got {part.strip()!r}."
            )
        counts += [count] * classes
    return counts


def read_seeds(text: str) -> tuple[int, ...] | None:
    """Return the seeds of a list or a range first:end; None for a single number.

    A single number is ambiguous: `reproduce` reads it as the number of seeds; `sweep` rejects it,
    because earlier versions of `sweep` read it as one seed.

    >>> read_seeds("0,3"), read_seeds("2,"), read_seeds("4:7"), read_seeds("2")
    ((0, 3), (2,), (4, 5, 6), None)
    """
    if ":" in text:
        before, _, after = text.partition(":")
        first, end = _seed(before, text), _seed(after, text)
        if not 0 < end - first <= MOST_SEEDS:
            raise NclabError(
                f"Expected --seeds first:end with up to {MOST_SEEDS} seeds, got {text!r}."
            )
        return tuple(range(first, end))
    if "," not in text:
        _seed(text, text)
        return None
    seeds = tuple(_seed(part, text) for part in text.split(",") if part.strip())
    if not seeds or len(set(seeds)) < len(seeds):
        raise NclabError(f"Expected --seeds without repetition, got {text!r}.")
    return seeds


def _seed(part: str, text: str) -> int:
    """Return one seed of the option; raise for other texts."""
    try:
        seed = int(part)
    except ValueError:
        raise NclabError(f"Expected integers in --seeds, got {part.strip() or text!r}.") from None
    if not 0 <= seed < 2**63:
        raise NclabError(f"Expected seeds of 0 or more in --seeds, got {seed}.")
    return seed
