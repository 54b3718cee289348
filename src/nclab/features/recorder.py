"""Context managers to run a model without changing it, and hooks that record what modules read.

Layers are the points of a forward pass whose features are measured. `"all"` means the input of
every weight layer after the first. In a chain of blocks (linear, activation, batch norm) this is
the finished output of each block, whatever the order inside the block; the last of these points is
the input of the classifier. A point is named after the outermost module that returned the tensor,
or `<reader>.input` if no module did, as with a functional activation. A module called several times
has points `name`, `name#2`, `name#3`, ...
"""

import difflib
import random
import re
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.hooks import RemovableHandle

from nclab.errors import ModelError
from nclab.features.batches import first_tensor
from nclab.features.pooling import NoRows, has_known_channels

_MEASURING = threading.RLock()
"""Lock held by the thread that measures. A measurement changes global state (modes of modules,
random states, PyTorch's fused transformer path), which two measurements at once would confuse."""
RESULTS = 16
"""A traced pass keeps the outputs of this many linear layers, the most recent ones, because one of
them may be the logits."""
Reader = Callable[[Tensor, nn.Module], Tensor]
"""Function that turns a tensor into rows, or raises `NoRows`. The type of the module, which read or
returned the tensor, determines the channel dimension."""
INPUT = ".input"
"""End of the name of a layer that is the input of a module."""


def unwrap(model: nn.Module) -> nn.Module:
    """Return the module inside torch.compile, DataParallel and DistributedDataParallel wrappers.

    >>> inner = nn.Linear(2, 2)
    >>> unwrap(nn.DataParallel(inner)) is inner
    True
    """
    while True:
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod  # type: ignore[assignment]
        else:
            return model


def compiled_parts(model: nn.Module) -> list[str]:
    """Return the names of compiled modules; hooks inside them do not run in training.

    >>> compiled_parts(nn.Sequential(nn.Linear(2, 2), torch.compile(nn.ReLU(), backend="eager")))
    ['1._orig_mod']
    """
    names = []
    for name, module in model.named_modules():
        if isinstance(getattr(module, "_orig_mod", None), nn.Module):
            names.append(f"{name}._orig_mod".removeprefix("."))
        elif getattr(module, "_compiled_call_impl", None) is not None:
            names.append(name)
    return names


def is_inside(name: str, parts: Collection[str]) -> bool:
    """Whether a module is one of `parts` or a submodule of one of them, judged by its name."""
    return any(not part or name == part or name.startswith(f"{part}.") for part in parts)


@contextmanager
def evaluating(model: nn.Module, loader: Any = None) -> Iterator[None]:
    """Evaluate without gradients, then restore the modes of all modules and all random states.

    The states of the loader's generators are restored as well. PyTorch's fused transformer path
    and torch.compile are switched off, because they skip the hooks of inner modules and round
    differently. One thread measures at a time; the others wait.
    """
    owners = (loader, getattr(loader, "sampler", None))
    generators = (getattr(owner, "generator", None) for owner in owners)
    set_stance = getattr(torch.compiler, "set_stance", None)  # since torch 2.6
    not_compiled = nullcontext() if set_stance is None else set_stance("force_eager")
    with _MEASURING:
        states = [(g, g.get_state()) for g in generators if isinstance(g, torch.Generator)]
        fused = torch.backends.mha.get_fastpath_enabled()
        python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002
        devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
        try:
            # Tensors made in inference mode do not record in-place changes.
            not_inference = torch.inference_mode(False)
            forked = torch.random.fork_rng(devices=devices)
            with _same_modes(model), forked, not_inference, torch.no_grad(), not_compiled:
                torch.backends.mha.set_fastpath_enabled(False)
                model.eval()
                yield
        finally:
            for generator, state in states:
                generator.set_state(state)
            torch.backends.mha.set_fastpath_enabled(fused)
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002


@contextmanager
def reading_weights(model: nn.Module) -> Iterator[None]:
    """Set evaluation mode to read weights; in training mode, reads would change a spectral norm."""
    with _same_modes(model), torch.no_grad():
        for module in model.modules():
            module.training = False
        yield


@contextmanager
def _same_modes(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


# Hooks


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
    """Fingerprint of a tensor. It changes if the tensor is changed in place or replaced."""

    storage: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Offset and strides in memory. The offset distinguishes the two halves of a tensor."""
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
    """Weak reference to a tensor: a call returns the tensor or, once it is freed, a meta tensor.

    A weak reference to the memory of the tensor keeps later tensors from getting the same address,
    and with it the same `Identity`. With `keep` the tensor stays alive.
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
        """Tensor that the module read; a meta tensor (shape without values) if not kept."""
        return None if self.source_ref is None else self.source_ref()

    @property
    def target(self) -> Tensor | None:
        """Tensor that the module returned; a meta tensor (shape without values) if not kept."""
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
    """Point -> the module that determines the channel dimension there; recorded while tracing."""
    calls: list[Call] = field(default_factory=list)
    rows: dict[Point, Tensor | NoRows] = field(default_factory=dict)
    dtypes: dict[Point, torch.dtype] = field(default_factory=dict)
    """Types of the tensors from which the rows were read."""
    full_points: Collection[Point] = ()
    """Points at which `rows` gets the whole tensor, channels last, instead of pooled rows."""

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
        """Add hooks to the modules of the points, or to all if tracing; skip those in `without`."""
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
        """Keep a tensor alive that finding the classifier may need.

        These are results of linear layers, which may be the logits, and inputs and results of other
        modules with a weight matrix, which are tested for linearity.
        """
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


def is_plain_linear(module: nn.Module) -> bool:
    """Whether a module certainly returns W x + b, so that no numerical test is needed."""
    plain = isinstance(module, nn.Linear) and type(module).forward is nn.Linear.forward
    return plain and has_only_own_hooks(module)


def is_weight_layer(module: nn.Module) -> bool:
    """Whether the module itself holds a matrix of weights: linear, convolution, attention, ...

    >>> is_weight_layer(nn.Linear(2, 2)), is_weight_layer(nn.BatchNorm1d(2))
    (True, False)
    """
    has_matrix = any(parameter.ndim >= 2 for parameter in module.parameters(recurse=False))
    has_matrix = has_matrix or hasattr(module, "parametrizations")
    return has_matrix and not isinstance(module, nn.Embedding)


def storages(tensors: Collection[Tensor]) -> set[int]:
    """Return the ids of the memory that tensors use. Views of one tensor have the same id."""
    return {_storage(tensor) for tensor in tensors}


def _is_strided(tensor: Tensor) -> bool:
    return not tensor.is_nested and tensor.layout is torch.strided


def _storage(tensor: Tensor) -> int:
    """Return the id of a tensor's memory; nested and sparse tensors have several memories."""
    return tensor.untyped_storage()._cdata if _is_strided(tensor) else id(tensor)


# Layers


class FoundLayer(NamedTuple):
    """A layer of a traced pass: its name, where it is read, and the identity of its tensor."""

    name: str
    point: Point
    identity: Identity | None


def named_points(model: nn.Module, names: Sequence[str]) -> list[tuple[str, Point]]:
    """Return the points of these names: `name` is a module's output, `name.input` its input."""
    modules = dict(model.named_modules())
    points = []
    for name in names:
        if not isinstance(name, str):
            raise ModelError(f"Expected layer names as text, got {name!r}.")
        repeated = re.search(r"#([2-9]|[1-9]\d+)$", name)
        module = name[: repeated.start()] if repeated else name
        call = int(repeated[1]) - 1 if repeated else 0
        if module in modules and module:
            points.append((name, Point(module, "output", call)))
        elif module.endswith(INPUT) and module.removesuffix(INPUT) in modules:
            points.append((name, Point(module.removesuffix(INPUT), "input", call)))
        else:
            near = difflib.get_close_matches(name, [key for key in modules if key], n=3, cutoff=0.3)
            hint = f"did you mean {', '.join(near)}?" if near else "see model.named_modules()."
            raise ModelError(f"Expected the name of a module, got {name!r}; {hint}")
    if not points:
        raise ModelError("Expected at least one layer name, got none. Pass layers='last'.")
    return points


def all_layers(
    calls: Sequence[Call], weight_layers: Sequence[str], inputs: Collection[Tensor]
) -> list[FoundLayer]:
    """Return the inputs of the weight layers, each tensor once, without the network's input."""
    model_input = storages(inputs)
    layers: list[FoundLayer] = []
    known: set[Identity] = set()
    for call in calls:
        identity, source = call.source_identity, call.source
        if call.name not in weight_layers or identity is None or source is None:
            continue
        if identity in known or identity.storage in model_input or not source.is_floating_point():
            continue
        known.add(identity)
        layers.append(input_layer(call, calls))
    return layers


def input_layer(call: Call, calls: Sequence[Call]) -> FoundLayer:
    """Return the input of a call as a layer, named after the outermost module that returned it."""
    makers = [
        maker
        for maker in _makers(call.source_identity, calls)
        if maker.left < call.entered and maker.target_identity is not None
    ]
    number = f"#{call.index + 1}" if call.index else ""
    name = f"{call.name}{INPUT}{number}".removeprefix(".")
    if makers:
        name = max(makers, key=lambda maker: maker.left).name
    return FoundLayer(name, Point(call.name, "input", call.index), call.source_identity)


def output_layer(call: Call, calls: Sequence[Call]) -> FoundLayer:
    """Wrap the output of a call as a layer; its name is the outermost module that returned it."""
    makers = _makers(call.target_identity, calls)
    maker = max(makers, key=lambda maker: maker.left) if makers else call
    number = f"#{maker.index + 1}" if maker.index else ""
    point = Point(maker.name, "output", maker.index)
    return FoundLayer(f"{maker.name}{number}", point, call.target_identity)


def _makers(identity: Identity | None, calls: Sequence[Call]) -> list[Call]:
    """Return the calls that returned this tensor, except those of modules called several times."""
    times = Counter(call.name for call in calls)
    return [
        call
        for call in calls
        if call.name and call.target_identity == identity and times[call.name] == 1
    ]
