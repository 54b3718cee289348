"""Hooks that nclab puts on modules: they follow no model into copies, files or compiled code."""

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


class Hook:
    """Calls a function; a copy of it, as in a copied or saved model, does nothing.

    >>> from copy import deepcopy
    >>> hook = Hook(lambda: 7)
    >>> hook(), deepcopy(hook)()
    (7, None)
    """

    def __init__(self, act: Callable[..., None] | None = None) -> None:
        self._act = act

    def __call__(self, *args: Any) -> None:
        if self._act is None or torch.compiler.is_compiling():
            return None  # what the compiler traces here would become part of the model
        return self._act(*args)

    def __copy__(self) -> "Hook":
        return Hook()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Hook":
        return Hook()

    def __reduce__(self) -> tuple[type["Hook"], tuple[()]]:
        return Hook, ()


def has_only_own_hooks(module: nn.Module) -> bool:
    """Whether no other hook can change what a module returns."""
    return all(isinstance(hook, Hook) for hook in module._forward_hooks.values())


def before(module: nn.Module, act: Callable[..., None]) -> RemovableHandle:
    """Call `act(module, args, kwargs)` whenever the module is entered."""
    return module.register_forward_pre_hook(Hook(act), with_kwargs=True)


def after(module: nn.Module, act: Callable[..., None]) -> RemovableHandle:
    """Call `act(module, args, output)` whenever the module is left."""
    return module.register_forward_hook(Hook(act))


RESULTS = 16
"""Results of linear layers that a traced pass keeps alive: the last ones may be the logits."""
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


class WeakTensor:
    """A tensor for as long as it lives; then its shape and type alone, as a meta tensor.

    The weak reference to its storage lets no later tensor pass for it. With `keep` it lives on.
    """

    def __init__(self, tensor: Tensor, *, keep: bool = False) -> None:
        self._tensor = weakref.ref(tensor)
        self._kept = tensor if keep or not _is_strided(tensor) else None
        self._storage = StorageWeakRef(tensor.untyped_storage()) if _is_strided(tensor) else None
        self._shape, self._dtype = tensor.shape, tensor.dtype

    def __call__(self) -> Tensor:
        """The tensor, or what is left of it."""
        alive = self._tensor()
        if alive is not None:
            return alive
        return torch.empty(self._shape, dtype=self._dtype, device="meta")


@dataclass
class Call:
    """One call of one module."""

    name: str
    module: nn.Module
    index: int
    entered: int
    left: int = -1
    source_identity: Identity | None = None
    target_identity: Identity | None = None
    source_ref: WeakTensor | None = None
    target_ref: WeakTensor | None = None

    @property
    def source(self) -> Tensor | None:
        """What the module read, a meta tensor if nobody has kept it."""
        return None if self.source_ref is None else self.source_ref()

    @property
    def target(self) -> Tensor | None:
        """What it returned, a meta tensor if nobody has kept it."""
        return None if self.target_ref is None else self.target_ref()


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
    keep: bool = False
    """Whether the tensors of a traced pass stay alive until `calls` are cleared."""
    channel_modules: dict[Point, nn.Module] = field(default_factory=dict)
    """Which module tells where the channels are; noted while tracing, then followed."""
    calls: list[Call] = field(default_factory=list)
    rows: dict[Point, Tensor | NoRows] = field(default_factory=dict)
    dtypes: dict[Point, torch.dtype] = field(default_factory=dict)
    """The types of the tensors that rows were read from."""
    active: bool = True
    """While it is not, the hooks do nothing."""
    without: Collection[str] = ()
    """Parts of the model that get no hooks."""
    whole: Collection[Point] = ()
    """Points whose tensors are kept as they are, channels last, instead of rows."""

    def __post_init__(self) -> None:
        self._handles: list[RemovableHandle] = []
        self._open: list[tuple[str, int, Call | None]] = []
        self._times: dict[str, int] = {}
        self._met: dict[tuple[int, ...], nn.Module] = {}
        self._results: deque[Tensor] = deque(maxlen=RESULTS)
        self._checked: list[Tensor] = []
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
        self.forget()

    def forget(self) -> None:
        """Let go of the tensors that were kept for finding the classifier."""
        self._results.clear()
        self._checked.clear()

    def _entering(self, name: str, calls: set[int | None], *, leaving: bool) -> Callable[..., None]:
        every = None in calls

        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if not self.active:
                return
            index = self._times.get(name, 0)
            self._times[name] = index + 1
            wanted = every or index in calls
            call = Call(name, module, index, self._tick()) if self.trace else None
            if leaving:
                self._open.append((name, index, call))
            if not wanted and call is None:
                return
            source = first_tensor(args)
            source = first_tensor(kwargs) if source is None else source
            if call is not None:
                self.calls.append(call)
                call.source_identity = self._meet(source, module)
                call.source_ref = None if source is None else WeakTensor(source, keep=self.keep)
                self._hold(source, module, result=False)
            if wanted:
                self._read(Point(name, "input", index), source, module)

        return hook

    def _leaving(self, name: str, calls: set[int | None]) -> Callable[..., None]:
        every = None in calls

        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            # Calls after it have raised, and the model went on without them.
            while self.active and self._open:
                opened, index, call = self._open.pop()
                if opened == name:
                    break
            else:
                return
            target = first_tensor(output)
            if call is not None:
                call.left = self._tick()
                call.target_identity = self._meet(target, module)
                call.target_ref = None if target is None else WeakTensor(target, keep=self.keep)
                self._hold(target, module, result=True)
            if every or index in calls:
                self._read(Point(name, "output", index), target, module)

        return hook

    def _hold(self, tensor: Tensor | None, module: nn.Module, *, result: bool) -> None:
        """Keep what may be the logits, and both sides of what only numbers show to be linear."""
        # Where all is kept no weight is looked at: in training a spectral norm would move on.
        if self.keep or tensor is None or weight_matrix(module) is None:
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
                met = module if known else self._met.get(tensor.shape, module)
                self.channel_modules[point] = met
            decider = self.channel_modules.get(point, module)
            whole = point in self.whole
            self.rows[point] = (
                channels_last(tensor, module) if whole else self.reader(tensor, decider)
            )
            self.dtypes[point] = tensor.dtype
        except NoRows as reason:
            self.rows[point] = reason

    def _meet(self, tensor: Tensor | None, module: nn.Module) -> Identity | None:
        if tensor is None:
            return None
        if not tensor.is_nested and has_known_channels(module):
            self._met[tensor.shape] = module
        return Identity.of(tensor)

    def _tick(self) -> int:
        self._clock += 1
        return self._clock


def channels_last(tensor: Tensor, module: nn.Module) -> Tensor:
    """A copy of what a head reads or returns, which later layers cannot change."""
    own = tensor.detach().clone()
    return own.movedim(1, -1) if isinstance(module, nn.modules.conv._ConvNd) else own


def weight_matrix(module: nn.Module) -> Tensor | None:
    """The two-dimensional weight of a module that may be a classifier."""
    weight = getattr(module, "weight", None)
    return weight if isinstance(weight, Tensor) and weight.ndim == 2 else None


def is_plain_linear(module: nn.Module) -> bool:
    """Whether a module is sure to return W x + b, so that no numbers must show it."""
    plain = isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward
    return plain and has_only_own_hooks(module)


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


class Outputs(NamedTuple):
    """The tensors in what a model returns."""

    likely: list[Tensor]
    """What may be the logits: `logits` alone where there are any, else each of them."""
    others: list[Tensor]

    @classmethod
    def of(cls, output: Any) -> "Outputs":
        """Taken from a tensor, a tuple or list, a mapping, or an object with `logits`.

        >>> found = Outputs.of({"aux": torch.ones(2, 3), "logits": torch.ones(2, 4)})
        >>> [tuple(tensor.shape) for tensor in found.tensors]
        [(2, 4), (2, 3)]
        """
        logits = getattr(output, "logits", None)
        if logits is None and isinstance(output, Mapping):
            logits = output.get("logits")
        if isinstance(output, Mapping):
            output = tuple(output.values())
        parts = output if isinstance(output, (tuple, list)) else [output]
        found = [tensor for part in parts if (tensor := first_tensor(part)) is not None]
        if not isinstance(logits, Tensor):
            return cls(found, [])
        return cls([logits], [tensor for tensor in found if tensor is not logits])

    @property
    def tensors(self) -> list[Tensor]:
        """All, the likely ones first."""
        return [*self.likely, *self.others]


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
    return tensor.untyped_storage()._cdata if _is_strided(tensor) else id(tensor)
