"""Sinks by name, ours and those of plugins: "console", "record:runs/mine", "tensorboard:logs"."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nclab import plugins
from nclab.errors import NclabError
from nclab.monitor.console import ConsoleSink
from nclab.monitor.record_sink import RecordSink
from nclab.monitor.sinks import Sink
from nclab.monitor.sinks_loggers import MlflowSink, TensorBoardSink, WandbSink

Maker = Callable[..., Sink]
"""Makes a sink of what follows the colon in its name, or of nothing."""


def _console(*metrics: str) -> Sink:
    return ConsoleSink(metrics[0].split(",") if metrics else None)


def _wandb(*project: str) -> Sink:
    return WandbSink(**({"project": project[0]} if project else {}))


def _mlflow(*uri: str) -> Sink:
    return MlflowSink(tracking_uri=uri[0] if uri else None)


def _record(folder: str = "runs/monitor") -> Sink:
    return RecordSink(folder)


def _tensorboard(folder: str = "runs/tensorboard") -> Sink:
    return TensorBoardSink(folder)


OURS: Mapping[str, Maker] = {
    "console": _console,
    "record": _record,
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}


def named_sink(words: str) -> Sink:
    """The sink that `name` or `name:target` means.

    >>> type(named_sink("console:loss,cdnv")).__name__
    'ConsoleSink'
    >>> named_sink("runs/mine")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    nclab.errors.NclabError: Expected a sink among console, record, ...; got 'runs/mine'. For a...
    """
    name, colon, target = words.partition(":")
    known = {**plugins.plugins("sinks"), **OURS}
    if name not in known:
        raise NclabError(
            f"Expected a sink among {', '.join([*OURS, *plugins.names('sinks')])}; got {words!r}. "
            "For a folder of records pass 'record:FOLDER', or RecordSink(folder)."
        )
    if name in OURS:
        made: Any = OURS[name](*([target] if colon else []))
    else:
        try:
            made = known[name](*([target] if colon else []))
        except Exception as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise NclabError(f"The plugin of the sink {words!r} cannot make it ({why}).") from error
    if not callable(made):
        raise NclabError(
            f"Expected the plugin {name!r} to give a callable that takes an Event, got "
            f"a {type(made).__name__}. Mend or uninstall it."
        )
    return made


def as_sinks(given: Any) -> list[Sink]:
    """One sink or several, callables or names, as a list; refused here, not after an epoch."""
    single = isinstance(given, str) or callable(given) or not isinstance(given, Iterable)
    several = [given] if single else list(given)
    found = [named_sink(one) if isinstance(one, str) else one for one in several]
    for own in found:
        if not callable(own):
            raise NclabError(
                f"Expected sinks= callables that take an Event, or their names, got {own!r}."
            )
    return found
