"""How a classifier makes logits of what it reads, and its weights as they are at any moment.

Every head here is a linear map, scale · rows · weightᵀ + bias, of the rows or of their directions,
by the weights or by theirs: plain, cosine, `x @ W`, a convolution over single points, one logit for
two classes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from nclab.features.linear_fit import Fit, fit, fit_with_offset
from nclab.features.recorder import Call, Identity, has_only_own_hooks, is_plain_linear

Pair = tuple[Tensor, Tensor | None]


@dataclass(frozen=True)
class HeadForm:
    """A classifier's weights, found once and read whenever they are needed."""

    weight: Callable[[], Tensor]
    bias: Callable[[], Tensor | None] = lambda: None
    turned: bool = False
    """Whether the weight is (d, C), as in `x @ W`."""
    unit_rows: bool = False
    """Whether the rows are divided by their norms first."""
    unit_weight: bool = False
    scale: Callable[[], Tensor | float] = lambda: 1.0
    scaled_bias: bool = False

    def read(self) -> Pair:
        """(C, d) weight and (C,) bias as they are now, in float64; one logit as two classes."""
        return binary_head(*self.raw())

    def raw(self) -> Pair:
        """`read` with one row where there is one logit."""
        weight = self.weight().detach().double()
        weight = weight.T if self.turned else weight.flatten(1)
        weight = normalize(weight, dim=1) if self.unit_weight else weight
        scale, bias = self._scale(), self.bias()
        if bias is not None:
            bias = bias.detach().double() * (scale if self.scaled_bias else 1.0)
        return weight * scale, bias

    def _scale(self) -> Tensor | float:
        scale = self.scale()
        return scale.detach().double().reshape(()) if isinstance(scale, Tensor) else scale


def binary_head(weight: Tensor, bias: Tensor | None) -> Pair:
    """A head of one logit z, for which class 1 is sigmoid(z), as the logits -z/2 and z/2.

    >>> binary_head(torch.tensor([[2.0, 4.0]]), None)[0].tolist()
    [[-1.0, -2.0], [1.0, 2.0]]
    """
    if len(weight) != 1:
        return weight, bias
    half = torch.tensor([[-0.5], [0.5]], dtype=weight.dtype, device=weight.device)
    return half * weight, None if bias is None else half[:, 0] * bias


def find_scale(
    owners: Iterator[nn.Module], scale: float, eps: float
) -> Callable[[], Tensor | float]:
    """The parameter that holds a scale, so that it is followed in training; else the number."""
    for module in owners:
        own = [*module._parameters.items(), *module._buffers.items()]
        for name, value in own:
            if value is None or value.numel() != 1 or not value.is_floating_point():
                continue
            for change in (_identity, torch.exp, torch.reciprocal):
                own_scale = float(change(value.detach().double()))
                if abs(own_scale - scale) <= 64 * eps * abs(scale):
                    return _scale_value(module, name, change)
    return lambda: scale


def _scale_value(
    module: nn.Module, name: str, change: Callable[[Tensor], Tensor]
) -> Callable[[], Tensor]:
    return lambda: change(getattr(module, name).detach().double())


def _identity(value: Tensor) -> Tensor:
    return value


Offset = Callable[[], Tensor | None]


class LinearCall(NamedTuple):
    """A call that makes logits in a known form."""

    call: Call
    form: HeadForm
    remark: str | None = None
    plain: bool = False

    def source(self) -> Tensor | None:
        """What it has read, with the channels last."""
        return self._channels_last(self.call.source)

    def target(self) -> Tensor | None:
        """What it has returned, with the channels last; made again if changed in place since."""
        target, read, source = self.call.target, self.call.source, self.source()
        if target is None or target.is_meta or Identity.of(target) == self.call.target_identity:
            return self._channels_last(target)
        if read is None or source is None or Identity.of(read) != self.call.source_identity:
            return None
        weight, bias = self.form.raw()
        rows = normalize(source.double(), dim=-1) if self.form.unit_rows else source.double()
        return (rows @ weight.T + (0.0 if bias is None else bias)).to(target.dtype)

    def _channels_last(self, tensor: Tensor | None) -> Tensor | None:
        if tensor is None or tensor.ndim < 3 or not is_pointwise(self.call.module):
            return tensor
        return tensor.movedim(1, -1)


def infer_linear_call(model: nn.Module, call: Call) -> LinearCall | None:
    """In which form a call has made what it returned, if that is a linear map of its input."""
    sure = certain_linear_call(call)
    if sure is not None:
        return sure
    module, source, target = call.module, call.source, call.target
    if source is None or target is None or not (is_dense(source) and is_dense(target)):
        return None
    if source.is_meta or target.is_meta or source.shape[:-1] != target.shape[:-1]:
        return None
    if isinstance(module, nn.modules.conv._ConvNd):
        return None
    rows, logits = (part.reshape(-1, part.shape[-1]) for part in (source, target))
    found = fit_parameters(model, call.name, module, rows, logits)
    if found is None:
        return None
    return LinearCall(call, found.form, directions_remark(call.name, found))


def certain_linear_call(call: Call) -> LinearCall | None:
    """Return the linear call of a module that is certain to be a linear map."""
    module, source, target = call.module, call.source, call.target
    form = HeadForm(_weight_of(module), lambda: _bias_of(module))
    if _computes_linear_map(call):
        return LinearCall(call, form, plain=True)
    if not is_pointwise(module) or source is None or target is None:
        return None
    return LinearCall(call, form) if is_dense(source) and is_dense(target) else None


class FittedParameter(NamedTuple):
    """A parameter of a module that makes logits of rows, and how."""

    parameter: str
    form: HeadForm
    fit: Fit


def fit_parameters(
    model: nn.Module, place: str, module: nn.Module, rows: Tensor, logits: Tensor
) -> FittedParameter | None:
    """The module's own matrix, and vector, that make (n, C) logits of (n, d) rows, if any do."""
    sizes = logits.shape[-1], rows.shape[-1]
    eps = torch.finfo(logits.dtype).eps
    for name, weight, turned in _matrices(module, sizes):
        for bias in (*_vectors(module, sizes[0]), None):
            own = None if bias is None else getattr(module, bias)
            found = fit(rows, logits, weight, own)
            if found is not None and found.with_bias == (bias is not None):
                offset = _nothing if bias is None else _reading(module, bias)
                return FittedParameter(
                    name, _form(model, place, name, turned, found, offset, eps), found
                )
        more = fit_with_offset(rows, logits, weight)
        if more is not None:
            offset = find_offset(model, more[1], eps)
            return FittedParameter(
                name, _form(model, place, name, turned, more[0], offset, eps), more[0]
            )
    return None


def _form(
    model: nn.Module, place: str, weight: str, turned: bool, found: Fit, offset: Offset, eps: float
) -> HeadForm:
    unit = found.unit_rows or found.unit_weight
    searched = unit or found.scale != 1.0
    scale = (
        find_scale(enclosing_modules(model, place), found.scale, eps) if searched else lambda: 1.0
    )
    reading = _weight_of(model.get_submodule(place), weight)
    sides = found.unit_rows, found.unit_weight
    return HeadForm(reading, offset, turned, *sides, scale, found.scaled_bias)


def directions_remark(name: str, found: FittedParameter) -> str | None:
    """What needs saying of a head that compares directions."""
    own = found.fit
    if not own.unit_rows:
        return None
    rows = "unit rows of its weight" if own.unit_weight else "weight"
    return (
        f"{name} compares directions: the features are measured as unit vectors, the classifier "
        f"is the {rows} times {own.scale:.4g}"
    )


def find_offset(model: nn.Module, offset: Tensor | None, eps: float) -> Offset:
    """The parameter or buffer that holds an offset of the logits, else the numbers themselves."""
    if offset is None:
        return _nothing
    size = float(offset.abs().amax())
    for module in model.modules():
        for name, value in _tensors_of(module):
            if value.numel() not in (1, len(offset)) or not value.is_floating_point():
                continue
            far = value.detach().double().flatten() - offset.to(value.device)
            if bool((far.abs() <= 64 * eps * size).all()):
                return _spread(module, name, len(offset))
    return lambda: offset


def enclosing_modules(model: nn.Module, name: str) -> Iterator[nn.Module]:
    """The module of that name and those around it, the innermost first."""
    parts = name.split(".") if name else []
    for length in range(len(parts), -1, -1):
        yield model.get_submodule(".".join(parts[:length]))


def is_dense(tensor: Tensor) -> bool:
    """Whether a tensor is rows of numbers, however many dimensions they are laid out in."""
    dense = not tensor.is_nested and tensor.layout is torch.strided
    return dense and tensor.is_floating_point() and tensor.ndim >= 2 and tensor.numel() > 0


def is_pointwise(module: nn.Module) -> bool:
    """Whether a module is a convolution that sees one point of the grid at a time."""
    if not isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return False
    ones = {*module.kernel_size, *module.stride, module.groups}
    plain = type(module).forward in (nn.Conv1d.forward, nn.Conv2d.forward, nn.Conv3d.forward)
    return ones == {1} and not any(module.padding) and plain and has_only_own_hooks(module)


def _matrices(module: nn.Module, sizes: tuple[int, int]) -> Iterator[tuple[str, Tensor, bool]]:
    """Names of the module's own matrices of C x d numbers, as (C, d), and whether it is turned."""
    for name, value in _tensors_of(module):
        if value.ndim == 2 and value.is_floating_point():
            if value.shape == sizes:
                yield name, value, False
            if value.shape == sizes[::-1]:
                yield name, value.T, True


def _vectors(module: nn.Module, size: int) -> Iterator[str]:
    for name, value in _tensors_of(module):
        if value.shape == (size,) and value.is_floating_point():
            yield name


def _tensors_of(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters, buffers and parametrised tensors of a module, not of those inside."""
    names = [*module._parameters, *module._buffers, *getattr(module, "parametrizations", ())]
    weight = getattr(module, "weight", None)
    if isinstance(weight, Tensor) and "weight" not in names:
        names.append("weight")  # of a weight norm in the old style
    for name in names:
        value = getattr(module, name)
        if isinstance(value, Tensor):
            yield name, value.detach()


def _weight_of(module: nn.Module, name: str = "weight") -> Callable[[], Tensor]:
    """Reads a weight; one that a hook computes before each pass is computed for now."""

    def read() -> Tensor:
        for hook in module._forward_pre_hooks.values():
            if getattr(hook, "name", None) == name and hasattr(hook, "compute_weight"):
                power = hasattr(hook, "n_power_iterations")
                how = {"do_power_iteration": False} if power else {}
                weight: Tensor = hook.compute_weight(module, **how)
                return weight
        value: Tensor = getattr(module, name)
        return value

    return read


def _bias_of(module: nn.Module) -> Tensor | None:
    bias = getattr(module, "bias", None)
    return bias if isinstance(bias, Tensor) else None


def _reading(module: nn.Module, name: str) -> Callable[[], Any]:
    return lambda: getattr(module, name)


def _spread(module: nn.Module, name: str, size: int) -> Callable[[], Tensor]:
    """Reads a number or a vector as a vector."""
    return lambda: getattr(module, name).detach().flatten().expand(size)


def _nothing() -> None:
    return None


def _computes_linear_map(call: Call) -> bool:
    """Whether W x + b, with the module's own W and b, is what it returned."""
    weight, bias = getattr(call.module, "weight", None), _bias_of(call.module)
    source, target = call.source, call.target
    if not isinstance(weight, Tensor) or weight.ndim != 2 or source is None or target is None:
        return False
    if source.is_nested or not source.is_floating_point() or source.ndim < 2:
        return False
    if source.shape[-1] != weight.shape[1] or target.shape != (*source.shape[:-1], len(weight)):
        return False
    if is_plain_linear(call.module):
        return True  # not checked by numbers: TF32 rounds more than any tolerance would allow
    rows, logits = (part.reshape(-1, part.shape[-1]) for part in (source, target))
    return fit(rows, logits, weight, bias) == Fit(with_bias=bias is not None)
