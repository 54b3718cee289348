"""One epoch of stochastic gradient descent, compiled by numba (the extra `fast`).

Features are stored transposed, (width, n): a neuron's batch is one row, which bias, ReLU, batch
norm and their gradients pass through while it is in the nearest cache, and the three matrix
products of a layer take less time than in the other order. A layer is updated as soon as the way
back has left it; its momentum then becomes momentum v + weight_decay theta, to which the next
step's gradients are added. All compiled code is in this file: numba's cache looks at no other.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])
Array = Any

PLAIN, TRANSPOSED = ord("N"), ord("T")


def _compiled(function: Function) -> Function:
    # Sums may be reordered, but inf and nan keep their meaning: divergence must be seen.
    freedoms = {"reassoc", "contract", "nsz", "arcp"}
    # All in one piece: a function that is called runs as another copy, which rounds otherwise, in
    # the process that compiles it than in those that load the caller from the cache.
    part = function.__name__ != "run_epoch"
    compiler = numba.njit(cache=True, nogil=True, fastmath=freedoms, forceinline=part)
    return cast(Function, compiler(function))


class Numbers(NamedTuple):
    """Scalars of a step, in the dtype of the weights: others would widen every product."""

    rate: Any
    weight_decay: Any
    momentum: Any
    epsilon: Any
    running: Any
    zero: Any
    one: Any


class Work(NamedTuple):
    """Room for one batch."""

    features: Array
    """What each linear layer reads, (layers, widest * batch)."""
    active: Array
    """After ReLU, before batch norm; without batch norm, the features of the layer above."""
    gradients: Array
    """Two, taken in turn, (2, widest * batch)."""
    moments: Array
    """Mean and 1 / sigma of the batch, (layers, 2, width)."""


class LayerArrays(NamedTuple):
    """Parameters or momenta of one layer; what it does not have is empty."""

    weight: Array
    bias: Array
    scale: Array
    shift: Array


@_compiled
def run_epoch(
    blas: int, state: Any, plan: Any, data: Any, work: Work, numbers: Numbers, results: Any
) -> None:
    """Step by step through the order."""
    parameters, momenta, _ = state
    inputs, labels, order, batch = data
    losses, hits = results
    steps = losses.shape[0]
    _prepare(parameters, momenta, numbers)
    for step in range(steps):
        rows = order[step * batch : (step + 1) * batch]
        logits = _forward(blas, state, plan, inputs, rows, work, numbers)
        losses[step], hits[step] = _cross_entropy(logits, labels, rows, numbers)
        if not math.isfinite(losses[step]):
            return
        _backward(blas, state, plan, logits, work, numbers, step + 1 < steps)


@_compiled
def _forward(
    blas: int, state: Any, plan: Any, inputs: Array, rows: Array, work: Work, numbers: Numbers
) -> Array:
    """The logits (C, n) of a batch; what the way back needs stays in `work`."""
    parameters, _, statistics = state
    places, norm = plan
    n, last = rows.shape[0], places.shape[0] - 1
    H = _matrix(work.features[0], inputs.shape[1], n)
    for i in range(n):
        for k in range(inputs.shape[1]):
            H[k, i] = inputs[rows[i], k]
    for index in range(last):
        layer = _layer(parameters, places[index])
        A = _matrix(work.active[index], layer.weight.shape[0], n)
        multiply(blas, layer.weight, PLAIN, H, PLAIN, 0.0, A)
        H = _matrix(work.features[index + 1], layer.weight.shape[0], n)
        _activate(A, H, layer, norm, work.moments[index], statistics[index], numbers)
    layer = _layer(parameters, places[last])
    logits = _matrix(work.gradients[0], layer.weight.shape[0], n)
    multiply(blas, layer.weight, PLAIN, H, PLAIN, 0.0, logits)
    for c in range(layer.bias.shape[0]):
        for i in range(n):
            logits[c, i] += layer.bias[c]
    return logits


@_compiled
def _backward(
    blas: int, state: Any, plan: Any, G: Array, work: Work, numbers: Numbers, again: bool
) -> None:
    """From the gradient in the logits down to the first layer, each updated on the way."""
    parameters, momenta, _ = state
    places, norm = plan
    n, last = G.shape[1], places.shape[0] - 1
    v = _layer(momenta, places[last])
    for c in range(v.bias.shape[0]):
        for i in range(n):
            v.bias[c] += G[c, i]
    for index in range(last, -1, -1):
        layer, v = _layer(parameters, places[index]), _layer(momenta, places[index])
        if index < last:
            A = _matrix(work.active[index], layer.weight.shape[0], n)
            _activate_backward(G, A, layer, v, norm, work.moments[index], numbers)
        H = _matrix(work.features[index], layer.weight.shape[1], n)
        multiply(blas, G, PLAIN, H, TRANSPOSED, 1.0, v.weight)
        if index > 0:
            below = _matrix(work.gradients[(last - index + 1) % 2], layer.weight.shape[1], n)
            multiply(blas, layer.weight, TRANSPOSED, G, PLAIN, 0.0, below)
            G = below
        start, end = places[index, 2], places[index, 6]
        _descend(parameters[start:end], momenta[start:end], numbers, again)


@_compiled
def _matrix(room: Array, rows: int, columns: int) -> Array:
    return room[: rows * columns].reshape((rows, columns))


@_compiled
def _layer(flat: Array, place: Array) -> LayerArrays:
    """Views of a flat vector, where `places` says."""
    outputs, inputs = place[0], place[1]
    return LayerArrays(
        flat[place[2] : place[2] + outputs * inputs].reshape((outputs, inputs)),
        flat[place[3] : place[3] + outputs] if place[3] >= 0 else flat[:0],
        flat[place[4] : place[4] + outputs] if place[4] >= 0 else flat[:0],
        flat[place[5] : place[5] + outputs] if place[5] >= 0 else flat[:0],
    )


@_compiled
def _prepare(parameters: Array, momenta: Array, numbers: Numbers) -> None:
    """What the gradients are added to: momentum v + weight_decay theta."""
    for i in range(parameters.shape[0]):
        momenta[i] = numbers.momentum * momenta[i] + numbers.weight_decay * parameters[i]


@_compiled
def _descend(parameters: Array, momenta: Array, numbers: Numbers, again: bool) -> None:
    """theta <- theta - rate v, and all that `_prepare` does if another step follows."""
    if again:
        for i in range(parameters.shape[0]):
            parameters[i] -= numbers.rate * momenta[i]
            momenta[i] = numbers.momentum * momenta[i] + numbers.weight_decay * parameters[i]
    else:
        for i in range(parameters.shape[0]):
            parameters[i] -= numbers.rate * momenta[i]


@_compiled
def _activate(
    A: Array,
    H: Array,
    layer: LayerArrays,
    norm: bool,
    moments: Array,
    statistics: Array,
    numbers: Numbers,
) -> None:
    """A <- relu(A + bias); H <- scale (A - mean) / sigma + shift, neuron by neuron."""
    n = A.shape[1]
    count, unbiased = A.dtype.type(n), A.dtype.type(n / max(n - 1, 1))
    biased, affine = layer.bias.shape[0] > 0, layer.scale.shape[0] > 0
    for j in range(A.shape[0]):
        bias = layer.bias[j] if biased else numbers.zero
        total = numbers.zero
        for i in range(n):
            z = A[j, i] + bias
            z = numbers.zero if z < numbers.zero else z  # a nan stays one
            A[j, i] = z
            total += z
        if not norm:
            continue
        mean = total / count
        squares = numbers.zero
        for i in range(n):
            squares += (A[j, i] - mean) * (A[j, i] - mean)
        variance = squares / count
        inverse = numbers.one / math.sqrt(variance + numbers.epsilon)
        scale = inverse * layer.scale[j] if affine else inverse
        shift = layer.shift[j] if affine else numbers.zero
        for i in range(n):
            H[j, i] = (A[j, i] - mean) * scale + shift
        moments[0, j], moments[1, j] = mean, inverse
        statistics[0, j] += numbers.running * (mean - statistics[0, j])
        statistics[1, j] += numbers.running * (unbiased * variance - statistics[1, j])


@_compiled
def _activate_backward(
    G: Array,
    A: Array,
    layer: LayerArrays,
    v: LayerArrays,
    norm: bool,
    moments: Array,
    numbers: Numbers,
) -> None:
    """G <- [A > 0] scale / sigma (G - mean(G) - X mean(G X)), where X = (A - mean) / sigma."""
    n = G.shape[1]
    count = G.dtype.type(n)
    biased, affine = v.bias.shape[0] > 0, v.scale.shape[0] > 0
    for j in range(G.shape[0]):
        mean, factor, low, slope = numbers.zero, numbers.one, numbers.zero, numbers.zero
        if norm:
            mean, inverse = moments[0, j], moments[1, j]
            shift, scale = numbers.zero, numbers.zero
            for i in range(n):
                shift += G[j, i]
                scale += G[j, i] * (A[j, i] - mean)
            scale *= inverse
            factor, low, slope = inverse, shift / count, inverse * scale / count
            if affine:
                v.shift[j] += shift
                v.scale[j] += scale
                factor *= layer.scale[j]
        total = numbers.zero
        for i in range(n):
            g = factor * (G[j, i] - low - (A[j, i] - mean) * slope)
            g = g if A[j, i] > numbers.zero else numbers.zero
            G[j, i] = g
            total += g
        if biased:
            v.bias[j] += total


@_compiled
def _cross_entropy(logits: Array, labels: Array, rows: Array, numbers: Numbers) -> Any:
    """Mean loss and hits; the logits become their gradient, (p - onehot) / n."""
    classes, n = logits.shape
    share = numbers.one / logits.dtype.type(n)
    loss, hits = 0.0, 0
    for i in range(n):
        label, top = labels[rows[i]], 0
        for c in range(1, classes):
            if logits[c, i] > logits[top, i]:
                top = c
        highest, lost = logits[top, i], logits[top, i] - logits[label, i]
        others = numbers.zero
        for c in range(classes):
            logits[c, i] = math.exp(logits[c, i] - highest)
            if c != top:
                others += logits[c, i]
        for c in range(classes):
            logits[c, i] *= share / (numbers.one + others)
        logits[label, i] -= share
        loss += lost + math.log1p(others)
        hits += top == label
    return loss / n, hits


@intrinsic
def _call_by_reference(context: Any, address: Any, arguments: Any) -> Any:
    """Call what is at an address as Fortran does: addresses as they are, others by one."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        pointers = []
        for index, kind in enumerate(signature.args[1]):
            value = builder.extract_value(values[1], index)
            if kind == types.uintp:
                pointers.append(builder.inttoptr(value, byte))
            else:
                pointers.append(builder.bitcast(cgutils.alloca_once_value(builder, value), byte))
        function = ir.FunctionType(ir.VoidType(), [byte] * len(pointers)).as_pointer()
        builder.call(builder.inttoptr(values[0], function), pointers)
        return context.get_dummy_value()

    return types.void(address, arguments), generate


@_compiled
def multiply(address: int, A: Any, A_as: int, B: Any, B_as: int, beta: float, C: Any) -> None:
    """C <- op(A) op(B) + beta C, for arrays that lie row by row: to BLAS, their transposes."""
    one, factor = C.dtype.type(1), C.dtype.type(beta)
    rows, columns = np.int32(C.shape[0]), np.int32(C.shape[1])
    inner = np.int32(A.shape[0] if A_as == TRANSPOSED else A.shape[1])
    a, b, c = A.ctypes.data, B.ctypes.data, C.ctypes.data
    wide_a, wide_b = np.int32(A.shape[1]), np.int32(B.shape[1])
    first = (np.uint8(B_as), np.uint8(A_as), columns, rows, inner)
    arguments = (*first, one, b, wide_b, a, wide_a, factor, c, columns)
    _call_by_reference(address, arguments)  # type: ignore[call-arg]
