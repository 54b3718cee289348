"""Recorder: hooks that note what modules read and return during one forward pass."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from nclab.features.evaluation import is_inside
from nclab.features.hooks import after, before
from nclab.features.pooling import NoRows, tells_channels

Reader = Callable[[Tensor, nn.Module], Tensor]
"""Turns a tensor, with channels where a module has them, into rows, or raises NoRows."""


class Identity(NamedTuple):
    """What tells whether two moments of a forward pass saw the same values."""

    storage: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """The offset first: two halves of a tensor share their storage and shape."""
    version: int

    @classmethod
    def of(cls, tensor: Tensor) -> "Identity":
        """The identity of a tensor that is still alive."""
        version = -1 if tensor.is_inference() else tensor._version
        if not _is_strided(tensor):
            return cls(_storage(tensor), (), (), version)
        strides = (int(tensor.storage_offset()), *map(int, tensor.stride()))
        return cls(_storage(tensor), tuple(tensor.shape), strides, version)


class Point(NamedTuple):
    """A place in the forward pass: the nth time a module is called, its input or its output."""

    module: str
    side: str
    """"input" or "output"."""
    call: int | None
    """From 0; None for every call, where it says what to read."""


@dataclass
class Call:
    """One call of one module."""

    name: str
    module: nn.Module
    index: int
    entered: int
    left: int = -1
    source: Tensor | None = None
    source_identity: Identity | None = None
    target: Tensor | None = None
    target_identity: Identity | None = None


@dataclass
class Recorder:
    """Reads rows at chosen points and, if `trace`, notes every call of every module.

    Rows are read the moment a module is entered or left, before an in-place operation
    downstream can change them. Use as a context manager around one forward pass; or `install` it
    for many, and `restart` it before each.
    """

    model: nn.Module
    reader: Reader
    points: Collection[Point]
    trace: bool = False
    deciders: dict[Point, nn.Module] = field(default_factory=dict)
    """Which module tells where the channels are; noted while tracing, then followed."""
    calls: list[Call] = field(default_factory=list)
    rows: dict[Point, Tensor | NoRows] = field(default_factory=dict)
    active: bool = True
    """While it is not, the hooks do nothing."""
    without: Collection[str] = ()
    """Parts of the model that get no hooks."""

    def __post_init__(self) -> None:
        self._handles: list[RemovableHandle] = []
        self._open: list[Call] = []
        self._times: Counter[str] = Counter()
        self._met: dict[tuple[int, ...], nn.Module] = {}
        self._clock = 0

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(self, *raised: object) -> None:
        self.remove()

    def install(self) -> None:
        """Put hooks on the modules of the points; if tracing, on all."""
        wanted: dict[tuple[str, str], set[int | None]] = {}
        for point in self.points:
            wanted.setdefault((point.module, point.side), set()).add(point.call)
        for name, module in self.model.named_modules():
            if self.without and is_inside(name, self.without):
                continue
            inputs, outputs = (wanted.get((name, side), set()) for side in ("input", "output"))
            leaving = self.trace or bool(outputs)
            if inputs or leaving:
                entering = self._entering(name, inputs, leaving=leaving)
                self._handles.append(before(module, entering))
            if leaving:
                self._handles.append(after(module, self._leaving(name, outputs)))

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def restart(self) -> None:
        """Forget the pass so far."""
        for seen in (self.calls, self.rows, self._open, self._times, self._met):
            seen.clear()

    def _entering(self, name: str, calls: set[int | None], *, leaving: bool) -> Callable[..., None]:
        every = None in calls

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if not self.active:
                return
            index = self._times[name]
            self._times[name] = index + 1
            if leaving:
                self._open.append(Call(name, module, index, self._tick()))
            wanted = every or index in calls
            if not wanted and not self.trace:
                return
            source = first_tensor(args)
            source = first_tensor(kwargs) if source is None else source
            if self.trace:
                call = self._open[-1]
                self.calls.append(call)
                call.source, call.source_identity = source, self._meet(source, module)
            if wanted:
                self._read(Point(name, "input", index), source, module)

        return hook

    def _leaving(self, name: str, calls: set[int | None]) -> Callable[..., None]:
        every = None in calls

        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            # Calls after it have raised, and the model went on without them.
            while self.active and self._open:
                call = self._open.pop()
                if call.name == name:
                    break
            else:
                return
            target = first_tensor(output)
            if self.trace:
                call.left = self._tick()
                call.target, call.target_identity = target, self._meet(target, module)
            if every or call.index in calls:
                self._read(Point(name, "output", call.index), target, module)

        return hook

    def _read(self, point: Point, tensor: Tensor | None, module: nn.Module) -> None:
        try:
            if tensor is None:
                raise NoRows("it is not a tensor")
            if self.trace:
                known = tells_channels(module) or tensor.is_nested
                met = module if known else self._met.get(tensor.shape, module)
                self.deciders[point] = met
            self.rows[point] = self.reader(tensor, self.deciders.get(point, module))
        except NoRows as reason:
            self.rows[point] = reason

    def _meet(self, tensor: Tensor | None, module: nn.Module) -> Identity | None:
        if tensor is None:
            return None
        if not tensor.is_nested and tells_channels(module):
            self._met[tensor.shape] = module
        return Identity.of(tensor)

    def _tick(self) -> int:
        self._clock += 1
        return self._clock


def first_tensor(value: Any) -> Tensor | None:
    """The tensor itself, or the first one inside a tuple, list or mapping.

    >>> first_tensor((None, {"logits": torch.ones(1)})).item()
    1.0
    """
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "values") and callable(value.values):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        for item in value:
            found = first_tensor(item)
            if found is not None:
                return found
    return None


def possible_logits(output: Any) -> list[Tensor]:
    """What may be the logits in what a model returns: `logits`, or each of its tensors.

    >>> [tuple(t.shape) for t in possible_logits((torch.ones(2, 3), torch.ones(2, 4)))]
    [(2, 3), (2, 4)]
    """
    logits = getattr(output, "logits", None)
    if logits is None and isinstance(output, Mapping):
        logits = output.get("logits")
    if isinstance(logits, Tensor):
        return [logits]
    if isinstance(output, Mapping):
        output = tuple(output.values())
    parts = output if isinstance(output, (tuple, list)) else [output]
    found = (first_tensor(part) for part in parts)
    return [tensor for tensor in found if tensor is not None]


def is_weight_layer(module: nn.Module) -> bool:
    """Whether the module itself holds a matrix of weights: linear, convolution, attention, ...

    >>> is_weight_layer(nn.Linear(2, 2)), is_weight_layer(nn.BatchNorm1d(2))
    (True, False)
    """
    if isinstance(module, nn.Embedding):
        return False
    return any(parameter.ndim >= 2 for parameter in module.parameters(recurse=False)) or hasattr(
        module, "parametrizations"
    )


def storages(tensors: Collection[Tensor]) -> set[int]:
    """Where the values of tensors are, to recognise views of them."""
    return {_storage(tensor) for tensor in tensors}


def _is_strided(tensor: Tensor) -> bool:
    return not tensor.is_nested and tensor.layout is torch.strided


def _storage(tensor: Tensor) -> int:
    """Where the values are; nested and sparse tensors have no one place but themselves."""
    return tensor.untyped_storage().data_ptr() if _is_strided(tensor) else id(tensor)
