"""One epoch of training, compiled by numba (the extra `fast`).

Features are stored transposed, (width, n): a neuron's batch is one row, which bias, activation,
batch norm and their gradients pass through while it is in the nearest cache, and the three matrix
products of a layer take less time than in the other order. A layer is updated as soon as the way
back has left it, and what the next step's gradients are added to is made ready in the same loop:
for SGD the momentum itself, then momentum v + weight_decay theta, for others a vector of its own.
All compiled code is in this file: numba's cache looks at no other.
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
SGD, MOMENTUM, ADAM, SIGN = range(4)
"""How a step is taken; SGD is the common case of MOMENTUM, coupled and without Nesterov."""
CROSS_ENTROPY, LABEL_SMOOTHING, FOCAL, MSE = range(4)
RELU, GELU, TANH = range(3)


def _compiled(function: Function) -> Function:
    # Sums may be reordered, but inf and nan keep their meaning: divergence must be seen.
    freedoms = {"reassoc", "contract", "nsz", "arcp"}
    # All in one piece: a function that is called runs as another copy, which rounds otherwise, in
    # the process that compiles it than in those that load the caller from the cache.
    part = function.__name__ != "run_epoch"
    # Adam divides in every turn of its loop: an error to raise would keep it from being vectorised.
    zero = "numpy" if function.__name__ == "_adam" else "python"
    options: Any = {"cache": True, "nogil": True, "forceinline": part, "error_model": zero}
    return cast(Function, numba.njit(**options, fastmath=freedoms)(function))


class Choices(NamedTuple):
    """What is trained, and how."""

    places: Array
    """Where the parameters of every layer lie, as `state.places` says."""
    norm: bool
    activation: int
    loss: int
    optimizer: int
    nesterov: bool


class Vectors(NamedTuple):
    """Flat vectors, which a step changes."""

    parameters: Array
    momenta: Array
    squares: Array
    """Of Adam alone."""
    sums: Array
    """What a step's gradients are added to: for SGD, the momenta."""
    statistics: Array


class Numbers(NamedTuple):
    """Scalars of a step, in the dtype of the weights: others would widen every product."""

    rate: Any
    momentum: Any
    beta2: Any
    fresh1: Any
    """1 - beta1, rounded once."""
    fresh2: Any
    adam_epsilon: Any
    smoothing: Any
    focusing: Any
    epsilon: Any
    running: Any
    lowest: Any
    zero: Any
    one: Any


class Work(NamedTuple):
    """Room for one batch."""

    features: Array
    """What each linear layer reads, (layers, widest * batch)."""
    active: Array
    """After the activation, before batch norm; without it, the features of the layer above."""
    slopes: Array
    """Derivatives of GELU, which do not follow from its values."""
    gradients: Array
    """Two, taken in turn, (2, widest * batch)."""
    moments: Array
    """Mean and 1 / sigma of the batch, (layers, 2, width)."""
    decays: Array
    """Of all parameters and of the classifier's bias: what weight decay adds to the gradient, and
    the share of a parameter that it leaves, (2, 2)."""
    corrections: Array
    """Adam's rate / (1 - beta1^t) and sqrt(1 - beta2^t) for every step, (steps, 2)."""


class LayerArrays(NamedTuple):
    """Parameters of one layer, or their part of the sums; what it does not have is empty."""

    weight: Array
    bias: Array
    scale: Array
    shift: Array


@_compiled
def run_epoch(
    blas: int, state: Vectors, plan: Choices, data: Any, work: Work, numbers: Numbers, results: Any
) -> None:
    """Step by step through the order."""
    inputs, labels, order, batch = data
    losses, hits = results
    steps = losses.shape[0]
    _prepare(state, plan, work.decays, numbers)
    for step in range(steps):
        rows = order[step * batch : (step + 1) * batch]
        logits = _forward(blas, state, plan, inputs, rows, work, numbers)
        if plan.loss == CROSS_ENTROPY:
            losses[step], hits[step] = _cross_entropy(logits, labels, rows, numbers)
        elif plan.loss == LABEL_SMOOTHING:
            losses[step], hits[step] = _label_smoothing(logits, labels, rows, numbers)
        elif plan.loss == FOCAL:
            losses[step], hits[step] = _focal(logits, labels, rows, numbers)
        else:
            losses[step], hits[step] = _mse(logits, labels, rows, numbers)
        if not math.isfinite(losses[step]):
            return
        _backward(blas, state, plan, logits, work, numbers, step, step + 1 < steps)


@_compiled
def _forward(
    blas: int,
    state: Vectors,
    plan: Choices,
    inputs: Array,
    rows: Array,
    work: Work,
    numbers: Numbers,
) -> Array:
    """The logits (C, n) of a batch; what the way back needs stays in `work`."""
    parameters, places = state.parameters, plan.places
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
        relu = plan.activation == RELU
        if not relu:
            S = _matrix(work.slopes[index], layer.weight.shape[0], n)
            _bend(A, S, layer.bias, plan.activation, numbers)
        moments, statistics = work.moments[index], state.statistics[index]
        _activate(A, H, layer, plan.norm, relu, moments, statistics, numbers)
    layer = _layer(parameters, places[last])
    logits = _matrix(work.gradients[0], layer.weight.shape[0], n)
    multiply(blas, layer.weight, PLAIN, H, PLAIN, 0.0, logits)
    for c in range(layer.bias.shape[0]):
        for i in range(n):
            logits[c, i] += layer.bias[c]
    return logits


@_compiled
def _backward(
    blas: int,
    state: Vectors,
    plan: Choices,
    G: Array,
    work: Work,
    numbers: Numbers,
    step: int,
    again: bool,
) -> None:
    """From the gradient in the logits down to the first layer, each updated on the way."""
    parameters, places = state.parameters, plan.places
    n, last = G.shape[1], places.shape[0] - 1
    v = _layer(state.sums, places[last])
    for c in range(v.bias.shape[0]):
        for i in range(n):
            v.bias[c] += G[c, i]
    for index in range(last, -1, -1):
        layer, v = _layer(parameters, places[index]), _layer(state.sums, places[index])
        if index < last:
            A = _matrix(work.active[index], layer.weight.shape[0], n)
            relu = plan.activation == RELU
            _activate_backward(G, A, layer, v, plan.norm, relu, work.moments[index], numbers)
            if not relu:
                S = _matrix(work.slopes[index], layer.weight.shape[0], n)
                _slope_backward(G, A, S, v, plan.activation, numbers)
        H = _matrix(work.features[index], layer.weight.shape[1], n)
        multiply(blas, G, PLAIN, H, TRANSPOSED, 1.0, v.weight)
        if index > 0:
            below = _matrix(work.gradients[(last - index + 1) % 2], layer.weight.shape[1], n)
            multiply(blas, layer.weight, TRANSPOSED, G, PLAIN, 0.0, below)
            G = below
        start, cut, end = places[index, 2], places[index, 6], places[index, 7]
        if plan.optimizer == SGD:
            added = work.decays[0, 0]
            _sgd(parameters[start:cut], state.momenta[start:cut], added, numbers, again)
            added = work.decays[1, 0]
            if cut < end:
                _sgd(parameters[cut:end], state.momenta[cut:end], added, numbers, again)
        else:
            _descend(state, plan, places[index], work, numbers, step)


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
def _prepare(state: Vectors, plan: Choices, decays: Array, numbers: Numbers) -> None:
    """What the first gradients are added to."""
    for index in range(plan.places.shape[0]):
        for part in range(2):
            theta, v, _, g = _part(state, plan.places[index], part)
            added = decays[part, 0]
            if plan.optimizer == SGD:
                for i in range(theta.shape[0]):
                    v[i] = numbers.momentum * v[i] + added * theta[i]
            else:
                for i in range(theta.shape[0]):
                    g[i] = added * theta[i]


@_compiled
def _part(state: Vectors, place: Array, part: int) -> Any:
    """A layer's vectors: of what has the weight decay of all, and of what has its own."""
    first, end = place[2 if part == 0 else 6], place[6 + part]
    return (
        state.parameters[first:end],
        state.momenta[first:end],
        state.squares[first:end],
        state.sums[first:end],
    )


@_compiled
def _descend(
    state: Vectors,
    plan: Choices,
    place: Array,
    work: Work,
    numbers: Numbers,
    step: int,
) -> None:
    """A step of one layer; then its sums are ready for the gradients of the next."""
    for part in range(2 if place[6] < place[7] else 1):
        theta, m, s, g = _part(state, place, part)
        added, left = work.decays[part, 0], work.decays[part, 1]
        if plan.optimizer == MOMENTUM:
            _momentum(theta, m, g, added, left, numbers, plan.nesterov)
        elif plan.optimizer == ADAM:
            _adam(theta, m, s, g, added, left, numbers, work.corrections[step])
        else:
            _sign(theta, m, g, added, left, numbers)


@_compiled
def _sgd(theta: Array, v: Array, added: Any, numbers: Numbers, again: bool) -> None:
    """theta <- theta - rate v, then v <- momentum v + added theta if another step follows."""
    if again:
        for i in range(theta.shape[0]):
            theta[i] -= numbers.rate * v[i]
            v[i] = numbers.momentum * v[i] + added * theta[i]
    else:
        for i in range(theta.shape[0]):
            theta[i] -= numbers.rate * v[i]


@_compiled
def _momentum(
    theta: Array, v: Array, g: Array, added: Any, left: Any, numbers: Numbers, nesterov: bool
) -> None:
    """v <- momentum v + g; theta <- left theta - rate v, or rate (g + momentum v) by Nesterov."""
    for i in range(theta.shape[0]):
        v[i] = numbers.momentum * v[i] + g[i]
        step = g[i] + numbers.momentum * v[i] if nesterov else v[i]
        theta[i] = left * theta[i] - numbers.rate * step
        g[i] = added * theta[i]


@_compiled
def _adam(
    theta: Array,
    m: Array,
    s: Array,
    g: Array,
    added: Any,
    left: Any,
    numbers: Numbers,
    corrections: Array,
) -> None:
    """m, s <- means of g, g^2; theta <- left theta - rate m / (sqrt(s) / root + epsilon)."""
    rate, root = corrections[0], corrections[1]
    for i in range(theta.shape[0]):
        m[i] += numbers.fresh1 * (g[i] - m[i])
        s[i] = numbers.beta2 * s[i] + numbers.fresh2 * g[i] * g[i]
        theta[i] = left * theta[i] - rate * m[i] / (math.sqrt(s[i]) / root + numbers.adam_epsilon)
        g[i] = added * theta[i]


@_compiled
def _sign(theta: Array, v: Array, g: Array, added: Any, left: Any, numbers: Numbers) -> None:
    """v <- momentum v + g; theta <- left theta - rate sign(v)."""
    for i in range(theta.shape[0]):
        v[i] = numbers.momentum * v[i] + g[i]
        up = numbers.one if v[i] > numbers.zero else numbers.zero
        down = numbers.one if v[i] < numbers.zero else numbers.zero
        theta[i] = left * theta[i] - numbers.rate * (up - down)
        g[i] = added * theta[i]


@_compiled
def _bend(A: Array, S: Array, bias: Array, activation: int, numbers: Numbers) -> None:
    """A <- tanh(A + bias) or GELU(A + bias), whose slope is kept."""
    half, root_half = A.dtype.type(0.5), A.dtype.type(math.sqrt(0.5))
    density = A.dtype.type(1 / math.sqrt(2 * math.pi))
    for j in range(A.shape[0]):
        own = bias[j] if bias.shape[0] > 0 else numbers.zero
        for i in range(A.shape[1]):
            z = A[j, i] + own
            if activation == TANH:
                A[j, i] = math.tanh(z)
            else:
                below = half * (numbers.one + math.erf(z * root_half))  # of the normal distribution
                A[j, i] = z * below
                S[j, i] = below + z * density * math.exp(-half * z * z)


@_compiled
def _activate(
    A: Array,
    H: Array,
    layer: LayerArrays,
    norm: bool,
    relu: bool,
    moments: Array,
    statistics: Array,
    numbers: Numbers,
) -> None:
    """A <- relu(A + bias); H <- scale (A - mean) / sigma + shift, neuron by neuron.

    A stays as it is for other activations, which come before it.
    """
    n = A.shape[1]
    count, unbiased = A.dtype.type(n), A.dtype.type(n / max(n - 1, 1))
    biased, affine = relu and layer.bias.shape[0] > 0, layer.scale.shape[0] > 0
    floor = numbers.zero if relu else numbers.lowest
    for j in range(A.shape[0]):
        bias = layer.bias[j] if biased else numbers.zero
        total = numbers.zero
        for i in range(n):
            z = A[j, i] + bias
            z = floor if z < floor else z  # a nan stays one
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
    relu: bool,
    moments: Array,
    numbers: Numbers,
) -> None:
    """G <- [A > 0] scale / sigma (G - mean(G) - X mean(G X)), where X = (A - mean) / sigma.

    Without [A > 0] and the bias for other activations, whose slope comes after it.
    """
    n = G.shape[1]
    count = G.dtype.type(n)
    biased, affine = relu and v.bias.shape[0] > 0, v.scale.shape[0] > 0
    floor = numbers.zero if relu else numbers.lowest
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
            g = g if A[j, i] > floor else numbers.zero
            G[j, i] = g
            total += g
        if biased:
            v.bias[j] += total


@_compiled
def _slope_backward(
    G: Array, A: Array, S: Array, v: LayerArrays, activation: int, numbers: Numbers
) -> None:
    """G <- slope G: 1 - A^2 of tanh, or what the way up has kept of GELU."""
    for j in range(G.shape[0]):
        total = numbers.zero
        for i in range(G.shape[1]):
            slope = S[j, i] if activation == GELU else numbers.one - A[j, i] * A[j, i]
            G[j, i] *= slope
            total += G[j, i]
        if v.bias.shape[0] > 0:
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


@_compiled
def _label_smoothing(logits: Array, labels: Array, rows: Array, numbers: Numbers) -> Any:
    """Cross-entropy with the targets (1 - smoothing) onehot + smoothing / C; as above."""
    classes, n = logits.shape
    share = numbers.one / logits.dtype.type(n)
    spread = numbers.smoothing / logits.dtype.type(classes)
    loss, hits = 0.0, 0
    for i in range(n):
        label, top = labels[rows[i]], 0
        for c in range(1, classes):
            if logits[c, i] > logits[top, i]:
                top = c
        highest, lost = logits[top, i], logits[top, i] - logits[label, i]
        others, deficits = numbers.zero, numbers.zero
        for c in range(classes):
            deficits += highest - logits[c, i]
            logits[c, i] = math.exp(logits[c, i] - highest)
            if c != top:
                others += logits[c, i]
        for c in range(classes):
            logits[c, i] = share * (logits[c, i] / (numbers.one + others) - spread)
        logits[label, i] -= share * (numbers.one - numbers.smoothing)
        loss += (numbers.one - numbers.smoothing) * lost + spread * deficits + math.log1p(others)
        hits += top == label
    return loss / n, hits


@_compiled
def _focal(logits: Array, labels: Array, rows: Array, numbers: Numbers) -> Any:
    """Mean of -(1 - p)^focusing log p, p that of the label; as above."""
    classes, n = logits.shape
    share = numbers.one / logits.dtype.type(n)
    loss, hits = 0.0, 0
    for i in range(n):
        label, top = labels[rows[i]], 0
        for c in range(1, classes):
            if logits[c, i] > logits[top, i]:
                top = c
        highest, lost = logits[top, i], logits[top, i] - logits[label, i]
        others, wrong = numbers.zero, numbers.zero
        for c in range(classes):
            logits[c, i] = math.exp(logits[c, i] - highest)
            if c != top:
                others += logits[c, i]
            if c != label:
                wrong += logits[c, i]
        total = numbers.one + others
        missing, surprise = wrong / total, lost + math.log1p(others)  # 1 - p and -log p
        power = missing**numbers.focusing
        ratio = surprise / missing if missing > numbers.zero else numbers.one
        # -p dloss/dp, by which the gradient of cross-entropy is multiplied
        weight = power * (numbers.one + numbers.focusing * ratio * logits[label, i] / total)
        for c in range(classes):
            logits[c, i] *= share * weight / total
        logits[label, i] = -share * weight * missing
        loss += power * surprise
        hits += top == label
    return loss / n, hits


@_compiled
def _mse(logits: Array, labels: Array, rows: Array, numbers: Numbers) -> Any:
    """Mean of |z - onehot|^2 / 2; as above."""
    classes, n = logits.shape
    share = numbers.one / logits.dtype.type(n)
    loss, hits = 0.0, 0
    for i in range(n):
        label, top = labels[rows[i]], 0
        for c in range(1, classes):
            if logits[c, i] > logits[top, i]:
                top = c
        logits[label, i] -= numbers.one
        squares = numbers.zero
        for c in range(classes):
            squares += logits[c, i] * logits[c, i]
            logits[c, i] *= share
        loss += 0.5 * squares
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
