"""Recorder: hooks that record what modules read and return during one forward pass."""

import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.hooks import RemovableHandle

from nclab.features.evaluation import is_inside
from nclab.features.pooling import NoRows, has_known_channels

RESULTS = 16
"""Results of linear layers that a traced pass keeps alive: the last ones may be the logits."""
Reader = Callable[[Tensor, nn.Module], Tensor]
"""Function that turns a tensor into rows, or raises `NoRows`; the module has the same channels."""


class Hook:
    """Function that a module calls; a copied or pickled hook does nothing.

    A copied or saved model therefore carries no working hook of nclab.

    >>> from copy import deepcopy
    >>> hook = Hook(lambda: 7)
    >>> hook(), deepcopy(hook)()
    (7, None)
    """

    def __init__(self, function: Callable[..., None] | None = None) -> None:
        self._function = function

    def __call__(self, *args: Any) -> None:
        if self._function is None or torch.compiler.is_compiling():
            return None  # what the compiler traces here would become part of the model
        return self._function(*args)

    def __reduce__(self) -> tuple[type["Hook"], tuple[()]]:
        return Hook, ()  # used by copy, deepcopy and pickle


def add_pre_hook(module: nn.Module, function: Callable[..., None]) -> RemovableHandle:
    """Call `function(module, args, kwargs)` before each forward pass of the module."""
    return module.register_forward_pre_hook(Hook(function), with_kwargs=True)


def add_hook(module: nn.Module, function: Callable[..., None]) -> RemovableHandle:
    """Call `function(module, args, output)` after each forward pass of the module."""
    return module.register_forward_hook(Hook(function))


def has_only_own_hooks(module: nn.Module) -> bool:
    """Whether no hook other than nclab's can change what a module returns."""
    return all(isinstance(hook, Hook) for hook in module._forward_hooks.values())


class Identity(NamedTuple):
    """Fingerprint of a tensor: equal at two moments if memory, layout and version are unchanged."""

    storage: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """The offset, then the strides: two halves of a tensor share their storage and shape."""
    version: int

    @classmethod
    def of(cls, tensor: Tensor) -> "Identity":
        """Return the identity of a tensor that is still alive."""
        version = -1 if tensor.is_inference() else tensor._version
        if not _is_strided(tensor):
            return cls(_storage(tensor), (), (), version)
        strides = (int(tensor.storage_offset()), *map(int, tensor.stride()))
        return cls(_storage(tensor), tuple(tensor.shape), strides, version)


class Point(NamedTuple):
    """A position in the forward pass: the input or output of the nth call of a module."""

    module: str
    side: str
    """"input" or "output"."""
    call: int | None
    """Number of the call, from 0; None requests every call."""


class WeakTensor:
    """Weak reference to a tensor; after the tensor's end it returns a meta tensor of that shape.

    The weak reference to the storage keeps its address from being reused by a later tensor. With
    `keep` the tensor stays alive.
    """

    def __init__(self, tensor: Tensor, *, keep: bool = False) -> None:
        self._tensor = weakref.ref(tensor)
        self._kept = tensor if keep or not _is_strided(tensor) else None
        self._storage = StorageWeakRef(tensor.untyped_storage()) if _is_strided(tensor) else None
        self._shape, self._dtype = tensor.shape, tensor.dtype

    def __call__(self) -> Tensor:
        """Return the tensor, or a meta tensor of its shape and type."""
        tensor = self._tensor()
        if tensor is not None:
            return tensor
        return torch.empty(self._shape, dtype=self._dtype, device="meta")


@dataclass
class Call:
    """One call of one module."""

    name: str
    module: nn.Module
    index: int
    """Number of the call of this module, from 0."""
    entered: int
    left: int = -1
    source_identity: Identity | None = None
    target_identity: Identity | None = None
    source_ref: WeakTensor | None = None
    target_ref: WeakTensor | None = None

    @property
    def source(self) -> Tensor | None:
        """Tensor that the module read; a meta tensor if it was not kept."""
        return None if self.source_ref is None else self.source_ref()

    @property
    def target(self) -> Tensor | None:
        """Tensor that the module returned; a meta tensor if it was not kept."""
        return None if self.target_ref is None else self.target_ref()


@dataclass
class Recorder:
    """Reads rows at chosen points and, if `trace` is true, records every call of every module.

    Rows are read when a module is entered or left, before a later in-place operation can change
    them. Use a recorder as a context manager around one forward pass; or `install` it for many
    passes, and `restart` it before each of them.
    """

    model: nn.Module
    reader: Reader
    points: Collection[Point]
    trace: bool = False
    keep: bool = False
    """Whether the tensors of a traced pass stay alive until `calls` is cleared."""
    channel_modules: dict[Point, nn.Module] = field(default_factory=dict)
    """The module that determines the channel dimension at a point; recorded while tracing."""
    calls: list[Call] = field(default_factory=list)
    rows: dict[Point, Tensor | NoRows] = field(default_factory=dict)
    dtypes: dict[Point, torch.dtype] = field(default_factory=dict)
    """Types of the tensors that the rows were read from."""
    full_points: Collection[Point] = ()
    """Points whose tensors are kept with all positions, channels last, instead of as rows."""

    def __post_init__(self) -> None:
        self._active = True
        self._handles: list[RemovableHandle] = []
        self._open: list[tuple[str, int, Call | None]] = []
        self._times: dict[str, int] = {}
        self._by_shape: dict[tuple[int, ...], nn.Module] = {}
        self._results: deque[Tensor] = deque(maxlen=RESULTS)
        self._checked: list[Tensor] = []
        self._clock = 0

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(self, *raised: object) -> None:
        self.remove()

    def install(self, without: Collection[str] = ()) -> None:
        """Put hooks on the modules of the points or, if tracing, on all; none inside `without`."""
        wanted: dict[tuple[str, str], set[int | None]] = {}
        for point in self.points:
            wanted.setdefault((point.module, point.side), set()).add(point.call)
        for name, module in self.model.named_modules():
            if without and is_inside(name, without):
                continue
            inputs, outputs = (wanted.get((name, side), set()) for side in ("input", "output"))
            leaving = self.trace or bool(outputs)
            if inputs or leaving:
                entering = self._entering(name, inputs, leaving=leaving)
                self._handles.append(add_pre_hook(module, entering))
            if leaving:
                self._handles.append(add_hook(module, self._leaving(name, outputs)))

    def remove(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def pause(self) -> None:
        """Make the hooks do nothing until the next `restart`."""
        self._active = False

    def restart(self) -> None:
        """Clear the records of the last pass and record the next one."""
        self._active = True
        for records in (self.calls, self.rows, self._open, self._times, self._by_shape):
            records.clear()
        self.forget()

    def forget(self) -> None:
        """Release the tensors that were kept for finding the classifier."""
        self._results.clear()
        self._checked.clear()

    def _entering(self, name: str, calls: set[int | None], *, leaving: bool) -> Callable[..., None]:
        every_call = None in calls

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if not self._active:
                return
            index = self._times.get(name, 0)
            self._times[name] = index + 1
            wanted = every_call or index in calls
            call = Call(name, module, index, self._tick()) if self.trace else None
            if leaving:
                self._open.append((name, index, call))
            if not wanted and call is None:
                return
            source = first_tensor(args)
            source = first_tensor(kwargs) if source is None else source
            if call is not None:
                self.calls.append(call)
                call.source_identity = self._identify(source, module)
                call.source_ref = None if source is None else WeakTensor(source, keep=self.keep)
                self._hold(source, module, result=False)
            if wanted:
                self._read(Point(name, "input", index), source, module)

        return hook

    def _leaving(self, name: str, calls: set[int | None]) -> Callable[..., None]:
        every_call = None in calls

        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            # Calls opened after this one have raised, and the model went on without them.
            while self._active and self._open:
                opened, index, call = self._open.pop()
                if opened == name:
                    break
            else:
                return
            target = first_tensor(output)
            if call is not None:
                call.left = self._tick()
                call.target_identity = self._identify(target, module)
                call.target_ref = None if target is None else WeakTensor(target, keep=self.keep)
                self._hold(target, module, result=True)
            if every_call or index in calls:
                self._read(Point(name, "output", index), target, module)

        return hook

    def _hold(self, tensor: Tensor | None, module: nn.Module, *, result: bool) -> None:
        """Keep possible logits alive, and both sides of modules to be tested for linearity."""
        # With `keep` no weight is read: in training, reading would advance a spectral norm.
        if self.keep or tensor is None:
            return
        weight = getattr(module, "weight", None)
        if not isinstance(weight, Tensor) or weight.ndim != 2:
            return
        if not is_plain_linear(module):
            self._checked.append(tensor)
        elif result:
            self._results.append(tensor)

    def _read(self, point: Point, tensor: Tensor | None, module: nn.Module) -> None:
        try:
            if tensor is None:
                raise NoRows("it is not a tensor")
            if self.trace:
                known = has_known_channels(module) or tensor.is_nested
                decider = module if known else self._by_shape.get(tensor.shape, module)
                self.channel_modules[point] = decider
            if point in self.full_points:
                copy = tensor.detach().clone()
                is_map = isinstance(module, nn.modules.conv._ConvNd)
                self.rows[point] = copy.movedim(1, -1) if is_map else copy
            else:
                self.rows[point] = self.reader(tensor, self.channel_modules.get(point, module))
            self.dtypes[point] = tensor.dtype
        except NoRows as reason:
            self.rows[point] = reason

    def _identify(self, tensor: Tensor | None, module: nn.Module) -> Identity | None:
        if tensor is None:
            return None
        if not tensor.is_nested and has_known_channels(module):
            self._by_shape[tensor.shape] = module
        return Identity.of(tensor)

    def _tick(self) -> int:
        self._clock += 1
        return self._clock


class Outputs(NamedTuple):
    """The tensors in what a model returns."""

    likely: list[Tensor]
    """Tensors that may be the logits: `logits` alone if the output has it, else all."""
    others: list[Tensor]

    @classmethod
    def of(cls, output: Any) -> "Outputs":
        """Collect the tensors of a tensor, tuple, list, mapping, or object with `logits`.

        >>> outputs = Outputs.of({"aux": torch.ones(2, 3), "logits": torch.ones(2, 4)})
        >>> [tuple(tensor.shape) for tensor in outputs.tensors]
        [(2, 4), (2, 3)]
        """
        logits = getattr(output, "logits", None)
        if logits is None and isinstance(output, Mapping):
            logits = output.get("logits")
        if isinstance(output, Mapping):
            output = tuple(output.values())
        parts = output if isinstance(output, (tuple, list)) else [output]
        tensors = [tensor for part in parts if (tensor := first_tensor(part)) is not None]
        if not isinstance(logits, Tensor):
            return cls(tensors, [])
        return cls([logits], [tensor for tensor in tensors if tensor is not logits])

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors, the likely logits first."""
        return [*self.likely, *self.others]


def first_tensor(value: Any) -> Tensor | None:
    """Return the tensor itself, or the first tensor inside a tuple, list or mapping.

    >>> first_tensor((None, {"logits": torch.ones(1)})).item()
    1.0
    """
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "values") and callable(value.values):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        for item in value:
            tensor = first_tensor(item)
            if tensor is not None:
                return tensor
    return None


def is_plain_linear(module: nn.Module) -> bool:
    """Whether a module certainly returns W x + b, so that no numerical test is needed."""
    plain = isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward
    return plain and has_only_own_hooks(module)


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
    """Return the ids of the memory that tensors use; a view has the id of its base."""
    return {_storage(tensor) for tensor in tensors}


def _is_strided(tensor: Tensor) -> bool:
    return not tensor.is_nested and tensor.layout is torch.strided


def _storage(tensor: Tensor) -> int:
    """Return the id of a tensor's memory; nested and sparse tensors have several memories."""
    return tensor.untyped_storage()._cdata if _is_strided(tensor) else id(tensor)
