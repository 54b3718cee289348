"""Linear maps among the calls of a traced pass, and readers of their current weights.

Every map has the form scale · rows · weightᵀ + bias, where rows and weight may be divided by their
norms: plain and cosine classifiers, `x @ W`, 1×1 convolutions, and one logit for two classes.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from nclab.features.recorder import Call, Identity, has_only_own_hooks, is_plain_linear

WeightAndBias = tuple[Tensor, Tensor | None]
"""A weight (C, d) and a bias (C,)."""
Offset = Callable[[], Tensor | None]
"""Function that returns the current bias; None for a map without a bias."""
TESTED_ROWS = 64
"""Number of rows on which a form of linear map is compared with the observed logits."""
FEWEST_ROWS = 3
"""A scale factor between two tensors is accepted only if they have at least this many rows."""
NORMALIZATIONS = ((False, False), (False, True), (True, False), (True, True))
"""Pairs (unit_rows, unit_weight): whether features, and weight rows, are divided by their norms."""


class Fit(NamedTuple):
    """A form of linear map that fits the logits: the scale, and whether features, and rows of the
    weight, are divided by their norms."""

    unit_rows: bool = False
    unit_weight: bool = False
    scale: float = 1.0
    with_bias: bool = True
    scaled_bias: bool = False
    """Whether the scale multiplies the bias as well."""


@dataclass(frozen=True)
class HeadForm:
    """Functions that read a classifier's current weights, and the form of its linear map."""

    weight: Callable[[], Tensor]
    bias: Offset = lambda: None
    transposed: bool = False
    """Whether the weight is (d, C), as in `x @ W`."""
    unit_rows: bool = False
    """Whether the features are divided by their norms first."""
    unit_weight: bool = False
    """Whether the rows of the weight are divided by their norms first."""
    scale: Callable[[], Tensor | float] = lambda: 1.0
    scaled_bias: bool = False
    """Whether the scale multiplies the bias as well."""

    def read(self) -> WeightAndBias:
        """Return the current (C, d) weight and (C,) bias in float64, converted by `binary_head`."""
        return binary_head(*self.raw())

    def raw(self) -> WeightAndBias:
        """Return the current weight and bias in float64, with one row if there is one logit."""
        weight = self.weight().detach().double()
        weight = weight.T if self.transposed else weight.flatten(1)
        weight = normalize(weight, dim=1) if self.unit_weight else weight
        scale, bias = self.scale(), self.bias()
        if isinstance(scale, Tensor):
            scale = scale.detach().double().reshape(())
        if bias is not None:
            bias = bias.detach().double() * (scale if self.scaled_bias else 1.0)
        return weight * scale, bias


def binary_head(weight: Tensor, bias: Tensor | None) -> WeightAndBias:
    """Convert a classifier with one logit z to two classes with the logits -z/2 and z/2.

    Both give class 1 the probability sigmoid(z). Classifiers with several logits are returned
    unchanged.

    >>> binary_head(torch.tensor([[2.0, 4.0]]), None)[0].tolist()
    [[-1.0, -2.0], [1.0, 2.0]]
    """
    if len(weight) != 1:
        return weight, bias
    half = torch.tensor([[-0.5], [0.5]], dtype=weight.dtype, device=weight.device)
    return half * weight, None if bias is None else half[:, 0] * bias


class LinearCall(NamedTuple):
    """A call that computes a linear map of its input, and how to read the weights."""

    call: Call
    form: HeadForm
    remark: str | None = None
    plain: bool = False
    """Whether the result is W x + b with the module's own weight and bias."""

    def source(self) -> Tensor | None:
        """Return the input of the call, with the channels last."""
        return self._channels_last(self.call.source)

    def target(self) -> Tensor | None:
        """Return the result with the channels last; recompute it if it was changed in place."""
        target, call_input, source = self.call.target, self.call.source, self.source()
        if target is None or target.is_meta or Identity.of(target) == self.call.target_identity:
            return self._channels_last(target)
        if call_input is None or source is None:
            return None
        if Identity.of(call_input) != self.call.source_identity:
            return None
        weight, bias = self.form.raw()
        rows = normalize(source.double(), dim=-1) if self.form.unit_rows else source.double()
        return (rows @ weight.T + (0.0 if bias is None else bias)).to(target.dtype)

    def _channels_last(self, tensor: Tensor | None) -> Tensor | None:
        if tensor is None or tensor.ndim < 3 or not is_pointwise(self.call.module):
            return tensor
        return tensor.movedim(1, -1)


def infer_linear_call(model: nn.Module, call: Call) -> LinearCall | None:
    """Return the linear map that a call computed, tested numerically; None if it is not linear."""
    certain = certain_linear_call(call)
    if certain is not None:
        return certain
    module, source, target = call.module, call.source, call.target
    if source is None or target is None or not (is_dense(source) and is_dense(target)):
        return None
    if source.is_meta or target.is_meta or source.shape[:-1] != target.shape[:-1]:
        return None
    if isinstance(module, nn.modules.conv._ConvNd):
        return None
    rows, logits = (part.reshape(-1, part.shape[-1]) for part in (source, target))
    match = fit_parameters(model, call.name, module, rows, logits)
    if match is None:
        return None
    return LinearCall(call, match.form, directions_remark(call.name, match))


def certain_linear_call(call: Call) -> LinearCall | None:
    """Return the linear map of a call if the type of its module guarantees one, else None."""
    module, source, target = call.module, call.source, call.target
    if source is None or target is None:
        return None
    form = HeadForm(_weight_reader(module), lambda: _bias_of(module))
    if _is_linear_map(module, source, target):
        return LinearCall(call, form, plain=True)
    pointwise = is_pointwise(module) and is_dense(source) and is_dense(target)
    return LinearCall(call, form) if pointwise else None


def _is_linear_map(module: nn.Module, source: Tensor, target: Tensor) -> bool:
    """Whether a module returned W x + b with its own W and b."""
    weight, bias = getattr(module, "weight", None), _bias_of(module)
    if not isinstance(weight, Tensor) or weight.ndim != 2:
        return False
    if source.is_nested or not source.is_floating_point() or source.ndim < 2:
        return False
    if source.shape[-1] != weight.shape[1] or target.shape != (*source.shape[:-1], len(weight)):
        return False
    if is_plain_linear(module):
        return True  # no numerical test: TF32 rounds more than any tolerance would allow
    rows, logits = (part.reshape(-1, part.shape[-1]) for part in (source, target))
    return fit(rows, logits, weight, bias) == Fit(with_bias=bias is not None)


class FittedParameter(NamedTuple):
    """A parameter that turns rows into logits, and the form of this linear map."""

    parameter: str
    form: HeadForm
    fit: Fit


def fit_parameters(
    model: nn.Module, module_name: str, module: nn.Module, rows: Tensor, logits: Tensor
) -> FittedParameter | None:
    """Find a weight of a module, and a bias, that turn (n, d) rows into (n, C) logits.

    `module_name` is the name of the module in the model. Return None if no weight fits.
    """
    classes, dim = logits.shape[-1], rows.shape[-1]
    eps = torch.finfo(logits.dtype).eps
    for name, value in _tensors_of(module):
        for shape, transposed in (((classes, dim), False), ((dim, classes), True)):
            if value.shape != shape or not value.is_floating_point():
                continue
            fitted = _fit_with_bias(model, module, rows, logits, value.T if transposed else value)
            if fitted is None:
                continue
            form, bias = fitted
            searched = form.unit_rows or form.unit_weight or form.scale != 1.0
            owners = enclosing_modules(model, module_name)
            head = HeadForm(
                _weight_reader(module, name),
                bias,
                transposed,
                form.unit_rows,
                form.unit_weight,
                find_scale(owners, form.scale, eps) if searched else lambda: 1.0,
                form.scaled_bias,
            )
            return FittedParameter(name, head, form)
    return None


def _fit_with_bias(
    model: nn.Module, module: nn.Module, rows: Tensor, logits: Tensor, weight: Tensor
) -> tuple[Fit, Offset] | None:
    """Return how this weight turns rows into logits, and a reader of the bias; None if it does not.

    The bias is tried in this order: tensors of the same module, no bias, tensors of other modules.
    """
    biases = [(module, name) for name in _vectors_of(module, logits)]
    others = [(other, name) for other in model.modules() for name in _vectors_of(other, logits)]
    for candidates in (biases, None, others):
        if candidates is None:
            form = fit(rows, logits, weight, None)
            if form is not None and not form.with_bias:
                return form, lambda: None
            continue
        for owner, name in candidates:
            form = fit(rows, logits, weight, getattr(owner, name))
            if form is not None and form.with_bias:
                return form, partial(getattr, owner, name)
    return None


def _vectors_of(module: nn.Module, logits: Tensor) -> list[str]:
    """Return the names of a module's (C,) tensors, which may be the bias of (n, C) logits."""
    return [
        name
        for name, value in _tensors_of(module)
        if value.is_floating_point() and value.shape == logits.shape[-1:]
    ]


def directions_remark(name: str, match: FittedParameter) -> str | None:
    """Return a remark if the head divides the features by their norms, else None."""
    if not match.fit.unit_rows:
        return None
    rows = "unit rows of its weight" if match.fit.unit_weight else "weight"
    return (
        f"{name} compares directions: the features are measured as unit vectors, the classifier "
        f"is the {rows} times {match.fit.scale:.4g}"
    )


def find_scale(
    owners: Iterator[nn.Module], scale: float, eps: float
) -> Callable[[], Tensor | float]:
    """Return a function that returns the current scale.

    If a parameter or buffer of `owners` holds the scale, its logarithm or its reciprocal, the
    function reads that parameter. Otherwise it returns `scale`.
    """
    for module in owners:
        for name, value in [*module._parameters.items(), *module._buffers.items()]:
            if value is None or value.numel() != 1 or not value.is_floating_point():
                continue
            for transform in (torch.positive, torch.exp, torch.reciprocal):
                candidate = float(transform(value.detach().double()))
                if abs(candidate - scale) <= 64 * eps * abs(scale):
                    return lambda: transform(getattr(module, name).detach().double())
    return lambda: scale


def enclosing_modules(model: nn.Module, name: str) -> Iterator[nn.Module]:
    """Yield the module of that name and the modules that contain it, the innermost first."""
    parts = name.split(".") if name else []
    for length in range(len(parts), -1, -1):
        yield model.get_submodule(".".join(parts[:length]))


def is_dense(tensor: Tensor) -> bool:
    """Whether a tensor is an ordinary floating-point array of two or more dimensions, not empty."""
    dense = not tensor.is_nested and tensor.layout is torch.strided
    return dense and tensor.is_floating_point() and tensor.ndim >= 2 and tensor.numel() > 0


def is_pointwise(module: nn.Module) -> bool:
    """Whether a module is a convolution with a kernel of one pixel."""
    if not isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return False
    sizes = {*module.kernel_size, *module.stride, module.groups}
    plain = type(module).forward in (nn.Conv1d.forward, nn.Conv2d.forward, nn.Conv3d.forward)
    return sizes == {1} and not any(module.padding) and plain and has_only_own_hooks(module)


def _tensors_of(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield parameters, buffers and parametrised tensors of a module, not of its submodules."""
    names = [*module._parameters, *module._buffers, *getattr(module, "parametrizations", ())]
    weight = getattr(module, "weight", None)
    if isinstance(weight, Tensor) and "weight" not in names:
        names.append("weight")  # of the older torch.nn.utils.weight_norm
    for name in names:
        value = getattr(module, name)
        if isinstance(value, Tensor):
            yield name, value.detach()


def _weight_reader(module: nn.Module, name: str = "weight") -> Callable[[], Tensor]:
    """Return a function that reads the current weight, also if a hook computes the weight."""

    def read() -> Tensor:
        for hook in module._forward_pre_hooks.values():
            if getattr(hook, "name", None) == name and hasattr(hook, "compute_weight"):
                spectral = hasattr(hook, "n_power_iterations")
                options = {"do_power_iteration": False} if spectral else {}
                weight: Tensor = hook.compute_weight(module, **options)
                return weight
        value: Tensor = getattr(module, name)
        return value

    return read


def _bias_of(module: nn.Module) -> Tensor | None:
    bias = getattr(module, "bias", None)
    return bias if isinstance(bias, Tensor) else None


def fit(rows: Tensor, logits: Tensor, weight: Tensor, bias: Tensor | None) -> Fit | None:
    """Return the form in which (n, d) rows and a (C, d) weight give the (n, C) logits, or None.

    Forms are preferred in this order: the plain product, a scaled product with unit vectors on one
    side, any other scaled product.

    >>> rows, weight = torch.tensor([[3.0, 4.0], [1, 0]]), torch.tensor([[0, 2.0], [1, 0]])
    >>> fit(rows, 5 * normalize(rows) @ normalize(weight).T, weight, None)
    Fit(unit_rows=True, unit_weight=True, scale=5.0, with_bias=False, scaled_bias=False)
    """
    if not (rows.is_floating_point() and logits.is_floating_point()):
        return None
    eps = max(torch.finfo(part.dtype).eps for part in (logits, weight, rows))
    rows, logits = rows[:TESTED_ROWS].double(), logits[:TESTED_ROWS].double()
    weight = weight.double()
    usual: list[tuple[Fit, float]] = []
    unusual: list[tuple[Fit, float]] = []
    for unit_rows, unit_weight in NORMALIZATIONS:
        product, size = _products(rows, weight, unit_rows, unit_weight)
        unit = unit_rows or unit_weight or has_unit_rows(rows, eps) or has_unit_rows(weight, eps)
        zero = torch.zeros_like(logits[0])
        terms = [(product, size, zero, False, False)]
        if bias is not None:
            shift = bias.double()
            scaled = (product + shift, size + shift.abs(), zero, True, True)
            terms = [(product, size, shift, True, False), scaled, *terms]
        for scaled_term, bound, added, with_bias, scaled_bias in terms:
            best = _best_scale(scaled_term, logits - added)
            for scale in (best,) if scaled_bias else (1.0, best):
                error = (scale * scaled_term + added - logits).abs()
                # The bound is what rounding can add to each sum.
                if not bool((error <= 8 * eps * (abs(scale) * bound + added.abs())).all()):
                    continue
                written = _written_number(scale, eps)
                form = Fit(unit_rows, unit_weight, written, with_bias, scaled_bias)
                distance = _root_mean_square(error)
                if not scaled_bias and (scale == 1.0 or (unit and scale > 0)):
                    usual.append((form, distance))
                elif scale != 0 and distance <= rounding(eps) * _root_mean_square(logits):
                    unusual.append((form, distance))
    # In bfloat16 a cosine may pass for a product: take the first form that is about as near as
    # the nearest.
    possible = usual + unusual
    nearest = min((distance for _, distance in possible), default=0.0)
    near_enough = 2 * nearest + 1e-14 * float(logits.abs().amax())
    return next((form for form, distance in possible if distance <= near_enough), None)


def fit_factor(result: Tensor, output: Tensor) -> float | None:
    """Return the factor f with output = f · result, both (n, C); None if there is none.

    >>> fit_factor(torch.eye(3), torch.eye(3) / 4)
    0.25
    """
    if len(output) < FEWEST_ROWS or result.shape != output.shape:
        return None
    eps = max(torch.finfo(part.dtype).eps for part in (output, result))
    result, output = result[:TESTED_ROWS].double(), output[:TESTED_ROWS].double()
    factor = _written_number(_best_scale(result, output), eps)
    error = (factor * result - output).abs()
    if not bool((error <= 8 * eps * (abs(factor) * result.abs() + output.abs())).all()):
        return None
    far = _root_mean_square(error) > rounding(eps) * _root_mean_square(output)
    return None if far or factor == 0.0 else factor


def rounding(eps: float) -> float:
    """Return the largest relative rounding error of logits in a type with machine epsilon `eps`.

    Logits in half precision are computed more precisely and rounded once, at the end: 4 eps is
    enough for them, and 64 eps for other types.

    >>> rounding(2**-8) == 4 * 2**-8
    True
    """
    return (64 if eps < 1e-5 else 4) * eps


def has_unit_rows(rows: Tensor, eps: float) -> bool:
    """Whether all rows have norm 1, up to rounding."""
    norms = torch.linalg.vector_norm(rows.double(), dim=1)
    return bool(((norms - 1).abs() <= 8 * eps).all())


def _products(
    rows: Tensor, weight: Tensor, unit_rows: bool, unit_weight: bool
) -> tuple[Tensor, Tensor]:
    """Return the (n, C) products of rows and weight, and bounds on the size of their terms.

    The bounds are the products of the absolute values; rounding errors are relative to them.
    """
    left = normalize(rows, dim=1) if unit_rows else rows
    right = normalize(weight, dim=1) if unit_weight else weight
    return left @ right.T, left.abs() @ right.abs().T


def _root_mean_square(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def _best_scale(product: Tensor, logits: Tensor) -> float:
    """Return the factor that brings the product nearest to the logits."""
    square = float(product.square().sum())
    return float((product * logits).sum()) / square if square else 0.0


def _written_number(scale: float, eps: float) -> float:
    """Return the short decimal number that a fitted factor stands for: 30 for 30.0000004.

    Reciprocals of short numbers such as 1 / 0.07 count as well. Other factors are returned
    unchanged.
    """
    if scale == 0 or not math.isfinite(scale):
        return 0.0
    for written in (float(f"{scale:.4g}"), 1 / float(f"{1 / scale:.4g}")):
        if abs(written - scale) <= 64 * eps * abs(scale):
            return written
    return scale
