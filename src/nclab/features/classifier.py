"""Finds the classifier: the last linear map that produces the logits."""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from nclab.errors import ModelError
from nclab.features.head_forms import Fit, HeadForm, Pair, as_two_classes, fit, scale_of
from nclab.features.hooks import only_ours
from nclab.features.layers import FoundLayer, input_layer, output_layer
from nclab.features.recorder import Call, Identity, Point, is_plain

AUTO = "auto"
"""Find the classifier."""
ClassifierChoice = str | Callable[[nn.Module], Any] | tuple[Any, Any] | None
"""`"auto"`, the name of a module, a function of the model or a pair that gives (W, b); None for
features only."""
INSTEAD = (
    "Pass classifier= the name of a module, a function model -> (W, b) or the pair itself, or "
    "None to measure features alone"
)


class Classifier(NamedTuple):
    """A linear map, what it reads, and what needs saying about it."""

    name: str
    reads: FoundLayer
    read: Callable[[], Pair]
    """(C, d) weight and (C,) bias as they are now."""
    remark: str | None = None
    unit_rows: bool = False
    """Whether it reads directions: the features are then divided by their norms."""
    logits: Point | None = None
    """Where a module returns the logits just as they are."""
    tensor: Tensor | None = None
    """What it has read, while the traced pass is looked at."""


class _Made(NamedTuple):
    """A call that makes logits in a known form."""

    call: Call
    form: HeadForm
    remark: str | None = None
    plain: bool = False


def needs_tensors(
    calls: list[Call], outputs: list[Tensor], chosen: ClassifierChoice = AUTO
) -> bool:
    """Whether only what modules have read and returned can tell where the classifier is.

    Not where a call of `nn.Linear` or a convolution over single points is sure to be it.
    """
    if chosen is None or not isinstance(chosen, str):
        return chosen is not None
    sure = [one for call in calls if (one := _surely_made(call)) is not None]
    plain = [one for one in sure if one.plain]
    if chosen != AUTO:
        return all(one.call.name != chosen for one in plain)
    if not outputs or _heads(plain, outputs):
        return False
    return len(outputs) > 1 or not _heads(sure, outputs)


def find_classifier(
    model: nn.Module,
    calls: list[Call],
    outputs: list[Tensor],
    chosen: ClassifierChoice = AUTO,
) -> Classifier | None:
    """The last linear map whose result is the model's output; None if only features are asked for.

    Of several outputs the first counts that is a call's result and is not itself read by another;
    a remark names the others. Calls of `nn.Linear` and of what computes the same come first, then
    modules of the other forms of `nclab.features.head_forms`, then parameters of the model that
    were used without a module. If the output is a function of a result (a softmax, a scale, a mean
    over tokens), the last linear call with the same decisions, with a remark. Where `needs_tensors`
    says so, the tensors of the calls must have been kept.
    """
    if chosen is None:
        return None
    if not isinstance(chosen, str):
        return _given(model, calls, outputs, chosen)
    made = [one for call in calls if (one := _made(call)) is not None]
    if chosen != AUTO:
        own = [one for one in made if one.call.name == chosen]
        if not own:
            raise ModelError(
                f"Expected classifier={chosen!r} to be a linear map called in the forward pass, "
                f"it is not. {INSTEAD}."
            )
        return _classifier(own[-1], calls)
    if not outputs:
        raise ModelError(
            "Expected a model that returns a tensor of logits, it returns none. Pass classifier= "
            "the name of the module that makes them, or None to measure features alone."
        )
    for kind in ([one for one in made if one.plain], made):
        heads = _heads(kind, outputs)
        if heads:
            others = ", ".join(one.call.name for one in heads[1:])
            remark = f"of several outputs took that of {heads[0].call.name}, not of {others}"
            return _classifier(heads[0], calls, remark if others else None)
    found = _without_module(model, calls, outputs, {id(one.call.module) for one in made})
    if found is not None:
        return found
    for one in reversed(made):
        for output in outputs:
            output = output[:, None] if output.ndim == 1 else output
            pooled = _pooled(one.call, output)
            if pooled is not None and not one.plain and _same(pooled, output):
                return _classifier(one, calls)  # the mean over a grid of a linear map
            if pooled is not None and _decides_alike(pooled, output):
                return _behind_a_function(model, one, calls, output)
    raise ModelError(_not_found(calls, outputs))


def _not_found(calls: list[Call], outputs: list[Tensor]) -> str:
    seen = ", ".join(sorted({type(call.module).__name__ for call in calls})) or "none"
    last = next((call for call in reversed(calls) if call.name), None)
    made = ", ".join(str(tuple(output.shape)) for output in outputs)
    reach = "" if last is None else f"; the last one called is {last.name!r}"
    return (
        f"Expected a model that ends in a linear classifier, found none among its modules "
        f"({seen}){reach}, and its output of shape {made} is no linear map of what they read. "
        f"{INSTEAD}; with layers= the name of what it reads."
    )


def _heads(made: list[_Made], outputs: list[Tensor]) -> list[_Made]:
    """For each output the last call that returned it, unless another such call reads it."""
    read = {one.call.source_identity for one in made}
    found = []
    for output in outputs:
        own = [one for one in made if _returned(one.call, output)]
        if own and own[-1].call.target_identity not in read:
            found.append(own[-1])
    return found


def _pooled(call: Call, output: Tensor) -> Tensor | None:
    """A call's result in the shape of the output: as it is, or its mean over positions."""
    target = call.target
    if target is None or output.ndim < 2 or not target.is_floating_point():
        return None
    if _is_pointwise(call.module) and target.ndim > 2:
        target = target.movedim(1, -1)
    if target.shape == output.shape:
        return target
    if output.ndim == 2 and target.ndim > 2 and target.shape[-1] == output.shape[-1]:
        pooled = target.flatten(1, -2).mean(1)
        return pooled if pooled.shape == output.shape else None
    return None


def _decides_alike(result: Tensor, output: Tensor) -> bool:
    """Whether the output has the largest entry where the result has it, in every row."""
    if output.shape[-1] > 1:
        return torch.equal(result.argmax(-1), output.argmax(-1))
    return any(torch.equal(result > 0, output > half) for half in (0.0, 0.5))


def _same(one: Tensor, other: Tensor) -> bool:
    if one.dtype != other.dtype:
        return False
    eps = torch.finfo(one.dtype).eps
    return bool(((one - other).abs() <= 8 * eps * one.abs().amax(-1, keepdim=True)).all())


def _behind_a_function(
    model: nn.Module, made: _Made, calls: list[Call], output: Tensor
) -> Classifier:
    """The head whose result the model changes: a scaled cosine is found, the rest is said."""
    name, source = made.call.name, made.call.source
    weight, bias = made.form.read()
    if source is not None and bias is None and output.shape[-1] == len(weight):
        rows, logits = (part.reshape(-1, part.shape[-1]) for part in (source, output))
        eps = torch.finfo(output.dtype).eps
        found = fit(rows, logits, weight, None) if len(rows) == len(logits) else None
        if found is not None and not (found.unit_rows or found.unit_weight):
            read = made.form.read
            form = HeadForm(lambda: read()[0], scale=scale_of(_owners(model, name), found, eps))
            return _classifier(made._replace(form=form, plain=False), calls)
    remark = (
        f"the model's output is not what {name} returns but something made of it; "
        "loss and margin are those of its logits"
    )
    return _classifier(made, calls, remark)


def _classifier(made: _Made, calls: list[Call], remark: str | None = None) -> Classifier:
    call, form = made.call, made.form
    reads = input_layer(call, calls)
    remark = remark or made.remark
    one_logit = len(form.weight()) == 1
    at = Point(call.name, "output", call.index) if made.plain and not one_logit else None
    return Classifier(call.name, reads, form.read, remark, form.unit_rows, at, call.source)


def _made(call: Call) -> _Made | None:
    """In which form a call has made what it returned, if that is a linear map of its input."""
    sure = _surely_made(call)
    if sure is not None:
        return sure
    module, source, target = call.module, call.source, call.target
    if source is None or target is None or not (_is_dense(source) and _is_dense(target)):
        return None
    if source.is_meta or target.is_meta or source.shape[:-1] != target.shape[:-1]:
        return None
    if isinstance(module, nn.modules.conv._ConvNd):
        return None
    sizes = target.shape[-1], source.shape[-1]
    rows, logits = (part.reshape(-1, part.shape[-1]) for part in (source, target))
    for name, weight, turned in _matrices(call.name, module, sizes):
        for bias in (*_vectors(module, sizes[0]), None):
            own = None if bias is None else getattr(module, bias)
            found = fit(rows, logits, weight, own)
            if found is not None and found.with_bias == (bias is not None):
                eps = torch.finfo(target.dtype).eps
                form = _form(module, name, bias, turned, found, iter([module]), eps)
                return _Made(call, form, _remark(call.name, found))
    return None


def _surely_made(call: Call) -> _Made | None:
    """`_made` of modules that are sure to be linear maps, whatever is left of the tensors."""
    module, source, target = call.module, call.source, call.target
    if _computes_linear_map(call):
        return _Made(call, HeadForm(_weight_of(module), _bias_of(module)), plain=True)
    if not _is_pointwise(module) or source is None or target is None:
        return None
    if not (_is_dense(source) and _is_dense(target)):
        return None
    return _Made(call, HeadForm(_weight_of(module), _bias_of(module)))


def _form(
    module: nn.Module,
    weight: str,
    bias: str | None,
    turned: bool,
    found: Fit,
    owners: Iterator[nn.Module],
    eps: float,
) -> HeadForm:
    offset: Callable[[], Any] = (lambda: None) if bias is None else lambda: getattr(module, bias)
    unit = found.unit_rows or found.unit_weight
    scale = scale_of(owners, found, eps) if unit or found.scale != 1.0 else lambda: 1.0
    reading = _weight_of(module, weight)
    return HeadForm(reading, offset, turned, found.unit_rows, found.unit_weight, scale)


def _remark(name: str, found: Fit) -> str | None:
    if not found.unit_rows:
        return None
    rows = "unit rows of its weight" if found.unit_weight else "its weight"
    return (
        f"{name} compares directions: the features are measured as unit vectors, the classifier "
        f"is the {rows.removeprefix('its ')} times {found.scale:.4g}"
    )


def _without_module(
    model: nn.Module, calls: list[Call], outputs: list[Tensor], known: set[int]
) -> Classifier | None:
    """Logits made of a module's input or output by a parameter, without a module of their own."""
    modules = {name: own for name, own in model.named_modules() if id(own) not in known}
    for output in outputs:
        logits = output[:, None] if output.ndim == 1 else output
        if not _is_dense(logits):
            continue
        for tensor, layer in _tensors(calls):
            sizes = logits.shape[-1], tensor.shape[-1]
            if tensor.shape[:-1] != logits.shape[:-1]:
                continue
            rows, flat = (part.reshape(-1, part.shape[-1]) for part in (tensor, logits))
            for place, module in modules.items():
                for name, weight, turned in _matrices(place, module, sizes):
                    for bias in (*_vectors(module, sizes[0]), None):
                        own = None if bias is None else getattr(module, bias)
                        found = fit(rows, flat, weight, own)
                        if found is None or found.with_bias != (bias is not None):
                            continue
                        eps = torch.finfo(flat.dtype).eps
                        owners = _owners(model, place)
                        form = _form(module, name, bias, turned, found, owners, eps)
                        title = f"{place}.{name}".removeprefix(".")
                        said = _remark(title, found)
                        return Classifier(
                            title, layer, form.read, said, found.unit_rows, None, tensor
                        )
    return None


def _given(model: nn.Module, calls: list[Call], outputs: list[Tensor], chosen: Any) -> Classifier:
    """A classifier whose weights the caller gives; what it reads is found by its result."""
    name = "classifier"

    def read() -> Pair:
        try:
            pair = chosen(model) if callable(chosen) else chosen
        except Exception as error:  # the caller's own function raises anything
            why = f"{type(error).__name__}: {error}"
            raise ModelError(f"Cannot call classifier= with the model: {why}.") from error
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ModelError(
                f"Expected classifier= to give a pair (W, b), got a {type(pair).__name__}. "
                "Without a bias give (W, None)."
            )
        weight, bias = (
            None if part is None else torch.as_tensor(part).detach().double() for part in pair
        )
        if weight is None or weight.ndim != 2:
            shape = None if weight is None else tuple(weight.shape)
            raise ModelError(
                f"Expected classifier= to give W of shape (classes, dimension), got {shape}."
            )
        return as_two_classes(weight, bias)

    weight, bias = read()
    nothing = FoundLayer("", Point("", "output", 0), None)
    best: Classifier | None = None
    for output in outputs:
        logits = output[:, None] if output.ndim == 1 else output
        if not _is_dense(logits):
            continue
        logits = torch.cat([-logits / 2, logits / 2], -1) if logits.shape[-1] == 1 else logits
        for tensor, layer in _tensors(calls):
            if tensor.shape != (*logits.shape[:-1], weight.shape[1]):
                continue
            rows, flat = (part.reshape(-1, part.shape[-1]) for part in (tensor, logits))
            if flat.shape[1] != len(weight):
                continue
            found = fit(rows, flat, weight, bias)
            if found is not None and found._replace(with_bias=True) == Fit():
                return Classifier(name, layer, read, tensor=tensor)
            decided = rows.double() @ weight.T + (0.0 if bias is None else bias)
            if best is None and torch.equal(decided.argmax(1), flat.argmax(1)):
                remark = (
                    "the model's output is not that of the given classifier but something made "
                    "of it; loss and margin are those of its logits"
                )
                best = Classifier(name, layer, read, remark, tensor=tensor)
    return best or Classifier(name, nothing, read)


def _tensors(calls: list[Call]) -> Iterator[tuple[Tensor, FoundLayer]]:
    """What modules returned and read, the last first, not changed in place since."""
    seen: set[Identity] = set()
    for call in reversed(calls):
        sides: tuple[tuple[Literal["output", "input"], Tensor | None, Identity | None], ...] = (
            ("output", call.target, call.target_identity),
            ("input", call.source, call.source_identity),
        )
        for side, tensor, identity in sides:
            if tensor is None or identity is None or identity in seen or not _is_dense(tensor):
                continue
            seen.add(identity)
            if Identity.of(tensor) != identity or not call.name:
                continue
            place = input_layer if side == "input" else output_layer
            yield tensor, place(call, calls)


def _is_dense(tensor: Tensor) -> bool:
    dense = not tensor.is_nested and tensor.layout is torch.strided
    return dense and tensor.is_floating_point() and tensor.ndim >= 2 and tensor.numel() > 0


def _owners(model: nn.Module, name: str) -> Iterator[nn.Module]:
    """The module of that name and those around it, the innermost first."""
    parts = name.split(".") if name else []
    for length in range(len(parts), -1, -1):
        yield model.get_submodule(".".join(parts[:length]))


def _matrices(
    place: str, module: nn.Module, sizes: tuple[int, int]
) -> Iterator[tuple[str, Tensor, bool]]:
    """Names of the module's own matrices of C x d numbers, as (C, d), and whether it is turned."""
    for name, value in _own(module):
        if value.ndim == 2 and value.is_floating_point():
            if value.shape == sizes:
                yield name, value, False
            if value.shape == sizes[::-1]:
                yield name, value.T, True


def _vectors(module: nn.Module, size: int) -> Iterator[str]:
    for name, value in _own(module):
        if value.shape == (size,) and value.is_floating_point():
            yield name


def _own(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
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


def _bias_of(module: nn.Module) -> Callable[[], Tensor | None]:
    def read() -> Tensor | None:
        bias = getattr(module, "bias", None)
        return bias if isinstance(bias, Tensor) else None

    return read


def _is_pointwise(module: nn.Module) -> bool:
    """Whether a module is a convolution that sees one point of the grid at a time."""
    if not isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return False
    ones = {*module.kernel_size, *module.stride, module.groups}
    plain = type(module).forward in (nn.Conv1d.forward, nn.Conv2d.forward, nn.Conv3d.forward)
    return ones == {1} and not any(module.padding) and plain and only_ours(module)


def _computes_linear_map(call: Call) -> bool:
    """Whether W x + b, with the module's own W and b, is what it returned."""
    weight, bias = getattr(call.module, "weight", None), getattr(call.module, "bias", None)
    source, target = call.source, call.target
    if not isinstance(weight, Tensor) or weight.ndim != 2 or source is None or target is None:
        return False
    if source.is_nested or not source.is_floating_point() or source.ndim < 2:
        return False
    if source.shape[-1] != weight.shape[1] or target.shape != (*source.shape[:-1], len(weight)):
        return False
    if is_plain(call.module):
        return True  # not checked by numbers: TF32 rounds more than any tolerance would allow
    rows, logits = (part.reshape(-1, part.shape[-1]) for part in (source, target))
    offset = bias if isinstance(bias, Tensor) else None
    found = fit(rows, logits, weight, offset)
    return found == Fit(with_bias=offset is not None)


def _returned(call: Call, output: Tensor) -> bool:
    """Whether the output holds what the call returned, not changed in place since."""
    target = call.target
    if target is None or target.numel() != output.numel():
        return False
    if Identity.of(target) != call.target_identity:
        return False
    turned = target.ndim == output.ndim > 2 and target.shape != output.shape
    if turned and target.shape == output.movedim(1, -1).shape:
        output = output.movedim(1, -1)  # classes second, as cross-entropy wants them
    same = torch.isclose(target.flatten(), output.flatten(), rtol=0.0, atol=0.0, equal_nan=True)
    return bool(same.all())
