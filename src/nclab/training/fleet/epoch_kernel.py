"""One epoch of training, compiled by numba (the extra `fast`).

Features are stored transposed, (width, n). Bias, activation, batch norm and their gradients then
work on one row, the batch of a neuron, while it is in the nearest cache, and the three matrix
products of a layer are faster. The backward pass updates a layer as soon as its gradient is
complete. The same loop prepares the vector to which the next step adds its gradients. For plain SGD
this vector is the momenta, and every entry v becomes momentum * v + weight_decay * theta, where
theta is the parameter. Other optimisers have a separate vector.
All compiled code is in this file, because numba's cache notices changes of this file only.
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
"""Rules of the optimiser. SGD is MOMENTUM without Nesterov and with coupled weight decay, which is
added to the gradient; this rule is the most common and has its own, faster loop."""
CROSS_ENTROPY, LABEL_SMOOTHING, FOCAL, MSE = range(4)
RELU, GELU, TANH = range(3)


def _compiled(function: Function) -> Function:
    """Compile a function; sums may be reordered, but inf and nan keep their meaning."""
    fastmath = {"reassoc", "contract", "nsz", "arcp"}
    # Inline all functions. Otherwise the process that compiles run_epoch and the processes that
    # load it from the cache call different copies of a function, which round differently.
    inline = function.__name__ != "run_epoch"
    # Adam divides in its loop; a check for division by zero would prevent vectorisation.
    error_model = "numpy" if function.__name__ == "_adam" else "python"
    options: Any = {"cache": True, "nogil": True, "forceinline": inline, "error_model": error_model}
    return cast(Function, numba.njit(**options, fastmath=fastmath)(function))


class Choices(NamedTuple):
    """Network, loss and optimiser as constants of this module."""

    layout: Array
    """Positions of the parameters of every layer, from `state.layout_table`."""
    first_norm: int
    """Index of the first hidden layer with batch norm; all later ones have it."""
    activation: int
    loss: int
    optimizer: int
    nesterov: bool


class Vectors(NamedTuple):
    """Flat vectors that a step changes."""

    parameters: Array
    momenta: Array
    squares: Array
    """Adam's running mean of the squared gradient."""
    gradients: Array
    """Vector to which a step adds its gradients: for plain SGD the momenta."""
    statistics: Array


class Numbers(NamedTuple):
    """Scalars of a step in the dtype of the weights, because float64 would widen every product."""

    rate: Any
    momentum: Any
    beta2: Any
    fresh1: Any
    """Weight of a new gradient in Adam's mean: 1 - beta1, rounded after the subtraction."""
    fresh2: Any
    """Weight of a new squared gradient: 1 - beta2, rounded after the subtraction."""
    adam_epsilon: Any
    smoothing: Any
    focal_gamma: Any
    epsilon: Any
    running: Any
    lowest: Any
    zero: Any
    one: Any


class Work(NamedTuple):
    """Working memory for one batch."""

    features: Array
    """Inputs of each linear layer: samples or outputs of batch norms, (layers, widest * batch)."""
    active: Array
    """Output of each activation; without batch norm the next linear layer reads it."""
    slopes: Array
    """Derivatives of GELU, kept because they cannot be computed from its outputs."""
    gradients: Array
    """Two buffers (2, widest * batch) for the gradients that pass from layer to layer: the backward
    pass reads one and writes the other, in turns."""
    moments: Array
    """Mean and 1 / sigma of every neuron over the batch, (layers, 2, width)."""
    decays: Array
    """(2, 2) factors of weight decay: row 1 for the classifier's bias, row 0 for everything else.
    Column 0 times a parameter is added to its gradient; column 1 multiplies the parameter."""
    corrections: Array
    """Adam's rate / (1 - beta1^t) and sqrt(1 - beta2^t) for every step, (steps, 2)."""


class LayerArrays(NamedTuple):
    """Parameters or gradients of one layer; empty arrays for those that it does not have."""

    weight: Array
    bias: Array
    scale: Array
    shift: Array


@_compiled
def run_epoch(
    blas: int,
    state: Vectors,
    choices: Choices,
    data: Any,
    work: Work,
    numbers: Numbers,
    results: Any,
) -> None:
    """Take every step of the epoch; stop at a loss that is not finite."""
    inputs, labels, order, batch = data
    losses, hits = results
    steps = losses.shape[0]
    _prepare(state, choices, work.decays, numbers)
    for step in range(steps):
        rows = order[step * batch : (step + 1) * batch]
        logits = _forward(blas, state, choices, inputs, rows, work, numbers)
        if choices.loss == CROSS_ENTROPY:
            losses[step], hits[step] = _cross_entropy(logits, labels, rows, numbers)
        elif choices.loss == LABEL_SMOOTHING:
            losses[step], hits[step] = _label_smoothing(logits, labels, rows, numbers)
        elif choices.loss == FOCAL:
            losses[step], hits[step] = _focal(logits, labels, rows, numbers)
        else:
            losses[step], hits[step] = _mse(logits, labels, rows, numbers)
        if not math.isfinite(losses[step]):
            return
        _backward(blas, state, choices, logits, work, numbers, step, step + 1 < steps)


@_compiled
def _forward(
    blas: int,
    state: Vectors,
    choices: Choices,
    inputs: Array,
    rows: Array,
    work: Work,
    numbers: Numbers,
) -> Array:
    """Return the logits (C, n) of a batch; keep in `work` what the backward pass needs."""
    parameters, layout = state.parameters, choices.layout
    n, last = rows.shape[0], layout.shape[0] - 1
    H = _matrix(work.features[0], inputs.shape[1], n)
    for i in range(n):
        for k in range(inputs.shape[1]):
            H[k, i] = inputs[rows[i], k]
    for index in range(last):
        layer = _layer(parameters, layout[index])
        A = _matrix(work.active[index], layer.weight.shape[0], n)
        multiply(blas, layer.weight, PLAIN, H, PLAIN, 0.0, A)
        H = _matrix(_inputs(work, choices, index + 1), layer.weight.shape[0], n)
        relu = choices.activation == RELU
        if not relu:
            S = _matrix(work.slopes[index], layer.weight.shape[0], n)
            _smooth(A, S, layer.bias, choices.activation, numbers)
        norm = index >= choices.first_norm
        moments, statistics = work.moments[index], state.statistics[index]
        _activate(A, H, layer, norm, relu, moments, statistics, numbers)
    layer = _layer(parameters, layout[last])
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
    choices: Choices,
    G: Array,
    work: Work,
    numbers: Numbers,
    step: int,
    more: bool,
) -> None:
    """Propagate the gradient G from the logits to the first layer and update every layer."""
    parameters, layout = state.parameters, choices.layout
    n, last = G.shape[1], layout.shape[0] - 1
    v = _layer(state.gradients, layout[last])
    for c in range(v.bias.shape[0]):
        for i in range(n):
            v.bias[c] += G[c, i]
    for index in range(last, -1, -1):
        layer, v = _layer(parameters, layout[index]), _layer(state.gradients, layout[index])
        if index < last:
            A = _matrix(work.active[index], layer.weight.shape[0], n)
            norm, relu = index >= choices.first_norm, choices.activation == RELU
            _activate_backward(G, A, layer, v, norm, relu, work.moments[index], numbers)
            if not relu:
                S = _matrix(work.slopes[index], layer.weight.shape[0], n)
                _smooth_backward(G, A, S, v, choices.activation, numbers)
        H = _matrix(_inputs(work, choices, index), layer.weight.shape[1], n)
        multiply(blas, G, PLAIN, H, TRANSPOSED, 1.0, v.weight)
        if index > 0:
            below = _matrix(work.gradients[(last - index + 1) % 2], layer.weight.shape[1], n)
            multiply(blas, layer.weight, TRANSPOSED, G, PLAIN, 0.0, below)
            G = below
        start, cut, end = layout[index, 2], layout[index, 6], layout[index, 7]
        if choices.optimizer == SGD:
            coupled = work.decays[0, 0]
            _sgd(parameters[start:cut], state.momenta[start:cut], coupled, numbers, more)
            coupled = work.decays[1, 0]
            if cut < end:
                _sgd(parameters[cut:end], state.momenta[cut:end], coupled, numbers, more)
        else:
            _descend(state, choices, layout[index], work, numbers, step)


@_compiled
def _inputs(work: Work, choices: Choices, index: int) -> Array:
    """Return the array in `work` that holds the inputs of a linear layer."""
    if index == 0 or index > choices.first_norm:
        return work.features[index]
    return work.active[index - 1]


@_compiled
def _matrix(memory: Array, rows: int, columns: int) -> Array:
    return memory[: rows * columns].reshape((rows, columns))


@_compiled
def _layer(flat: Array, row: Array) -> LayerArrays:
    """Return views of a flat vector at the positions of one row of the layout."""
    outputs, inputs = row[0], row[1]
    return LayerArrays(
        flat[row[2] : row[2] + outputs * inputs].reshape((outputs, inputs)),
        flat[row[3] : row[3] + outputs] if row[3] >= 0 else flat[:0],
        flat[row[4] : row[4] + outputs] if row[4] >= 0 else flat[:0],
        flat[row[5] : row[5] + outputs] if row[5] >= 0 else flat[:0],
    )


@_compiled
def _prepare(state: Vectors, choices: Choices, decays: Array, numbers: Numbers) -> None:
    """Initialise the vector to which the first step adds its gradients."""
    for index in range(choices.layout.shape[0]):
        for part in range(2):
            theta, v, _, g = _part(state, choices.layout[index], part)
            coupled = decays[part, 0]
            if choices.optimizer == SGD:
                for i in range(theta.shape[0]):
                    v[i] = numbers.momentum * v[i] + coupled * theta[i]
            else:
                for i in range(theta.shape[0]):
                    g[i] = coupled * theta[i]


@_compiled
def _part(state: Vectors, row: Array, part: int) -> Any:
    """Return parameters, momenta, squares and gradients of one part of a layer.

    Part 0 has the common weight decay. Part 1 is the classifier's bias, which may have another.
    """
    first, end = row[2 if part == 0 else 6], row[6 + part]
    return (
        state.parameters[first:end],
        state.momenta[first:end],
        state.squares[first:end],
        state.gradients[first:end],
    )


@_compiled
def _descend(
    state: Vectors, choices: Choices, row: Array, work: Work, numbers: Numbers, step: int
) -> None:
    """Take a step of one layer; initialise the gradients of its next step with weight decay."""
    for part in range(2 if row[6] < row[7] else 1):
        theta, m, s, g = _part(state, row, part)
        coupled, remaining = work.decays[part, 0], work.decays[part, 1]
        if choices.optimizer == MOMENTUM:
            _momentum(theta, m, g, coupled, remaining, numbers, choices.nesterov)
        elif choices.optimizer == ADAM:
            _adam(theta, m, s, g, coupled, remaining, numbers, work.corrections[step])
        else:
            _sign(theta, m, g, coupled, remaining, numbers)


@_compiled
def _sgd(theta: Array, v: Array, coupled: Any, numbers: Numbers, more: bool) -> None:
    """Take a step of the parameters theta: theta <- theta - rate * v.

    The momenta v already contain the gradients. If another step follows, prepare them for it:
    v <- momentum * v + coupled * theta, where `coupled` is the weight decay.
    """
    if more:
        for i in range(theta.shape[0]):
            theta[i] -= numbers.rate * v[i]
            v[i] = numbers.momentum * v[i] + coupled * theta[i]
    else:
        for i in range(theta.shape[0]):
            theta[i] -= numbers.rate * v[i]


@_compiled
def _momentum(
    theta: Array,
    v: Array,
    g: Array,
    coupled: Any,
    remaining: Any,
    numbers: Numbers,
    nesterov: bool,
) -> None:
    """Update momenta v and parameters theta by the gradients g; Nesterov steps by g + momentum * v.

    v <- momentum * v + g; theta <- remaining * theta - rate * v. `remaining` is the factor of
    decoupled weight decay. The gradient of the next step is initialised with coupled * theta.
    """
    for i in range(theta.shape[0]):
        v[i] = numbers.momentum * v[i] + g[i]
        step = g[i] + numbers.momentum * v[i] if nesterov else v[i]
        theta[i] = remaining * theta[i] - numbers.rate * step
        g[i] = coupled * theta[i]


@_compiled
def _adam(
    theta: Array,
    m: Array,
    s: Array,
    g: Array,
    coupled: Any,
    remaining: Any,
    numbers: Numbers,
    corrections: Array,
) -> None:
    """Update the parameters theta by Adam, with running means m of the gradients g and s of g^2.

    theta <- remaining * theta - rate * m / (sqrt(s) / root + epsilon), with rate and root from
    `Work.corrections`. `remaining` is the factor of decoupled weight decay. The gradient of the
    next step is initialised with coupled * theta.
    """
    rate, root = corrections[0], corrections[1]
    for i in range(theta.shape[0]):
        m[i] += numbers.fresh1 * (g[i] - m[i])
        s[i] = numbers.beta2 * s[i] + numbers.fresh2 * g[i] * g[i]
        step = rate * m[i] / (math.sqrt(s[i]) / root + numbers.adam_epsilon)
        theta[i] = remaining * theta[i] - step
        g[i] = coupled * theta[i]


@_compiled
def _sign(theta: Array, v: Array, g: Array, coupled: Any, remaining: Any, numbers: Numbers) -> None:
    """Update momenta v and parameters theta by the gradients g, with steps of equal size.

    v <- momentum * v + g; theta <- remaining * theta - rate * sign(v). `remaining` is the factor
    of decoupled weight decay. The gradient of the next step is initialised with coupled * theta.
    """
    for i in range(theta.shape[0]):
        v[i] = numbers.momentum * v[i] + g[i]
        up = numbers.one if v[i] > numbers.zero else numbers.zero
        down = numbers.one if v[i] < numbers.zero else numbers.zero
        theta[i] = remaining * theta[i] - numbers.rate * (up - down)
        g[i] = coupled * theta[i]


@_compiled
def _smooth(A: Array, S: Array, bias: Array, activation: int, numbers: Numbers) -> None:
    """Set A to tanh(A + bias) or GELU(A + bias), and S to the derivative of GELU."""
    half, root_half = A.dtype.type(0.5), A.dtype.type(math.sqrt(0.5))
    density = A.dtype.type(1 / math.sqrt(2 * math.pi))
    for j in range(A.shape[0]):
        shift = bias[j] if bias.shape[0] > 0 else numbers.zero
        for i in range(A.shape[1]):
            z = A[j, i] + shift
            if activation == TANH:
                A[j, i] = math.tanh(z)
            else:
                below = half * (numbers.one + math.erf(z * root_half))  # normal CDF
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
    """Apply ReLU and batch norm: A <- relu(A + bias); H <- scale * (A - mean) / sigma + shift.

    Mean and standard deviation sigma are those of a neuron in the batch. If the activation is not
    ReLU, `_smooth` has already applied it, and A stays unchanged.
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
            z = floor if z < floor else z  # nan stays nan
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
    """Propagate the gradient G through batch norm and ReLU; add the gradients of their parameters.

    G <- [A > 0] * scale / sigma * (G - mean(G) - X * mean(G * X)), where X = (A - mean) / sigma.
    If the activation is not ReLU, the factor [A > 0] and the bias are left to `_smooth_backward`.
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
def _smooth_backward(
    G: Array, A: Array, S: Array, v: LayerArrays, activation: int, numbers: Numbers
) -> None:
    """Multiply the gradient G by the slope of the activation: 1 - A^2 for tanh, S for GELU."""
    for j in range(G.shape[0]):
        total = numbers.zero
        for i in range(G.shape[1]):
            slope = S[j, i] if activation == GELU else numbers.one - A[j, i] * A[j, i]
            G[j, i] *= slope
            total += G[j, i]
        if v.bias.shape[0] > 0:
            v.bias[j] += total


@_compiled
def _top_class(logits: Array, i: int) -> int:
    """Return the first class with the largest logit of sample i."""
    top = 0
    for c in range(1, logits.shape[0]):
        if logits[c, i] > logits[top, i]:
            top = c
    return top


@_compiled
def _cross_entropy(logits: Array, labels: Array, rows: Array, numbers: Numbers) -> Any:
    """Return the mean cross-entropy and the number of correct samples; replace logits by (p - y)/n.

    (p - y)/n is the gradient, with the softmax p, the one-hot labels y and n samples.
    """
    classes, n = logits.shape
    share = numbers.one / logits.dtype.type(n)
    loss, hits = 0.0, 0
    for i in range(n):
        label, top = labels[rows[i]], _top_class(logits, i)
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
    """Return mean loss and number of correct samples; replace logits by their gradient.

    The targets of label smoothing s are (1 - s) * onehot + s / C for C classes.
    """
    classes, n = logits.shape
    share = numbers.one / logits.dtype.type(n)
    spread = numbers.smoothing / logits.dtype.type(classes)
    loss, hits = 0.0, 0
    for i in range(n):
        label, top = labels[rows[i]], _top_class(logits, i)
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
    """Return mean loss and number of correct samples; replace logits by their gradient.

    The focal loss of a sample is f(p) = -(1 - p)^gamma log p, with the probability p of its label.
    """
    classes, n = logits.shape
    share = numbers.one / logits.dtype.type(n)
    loss, hits = 0.0, 0
    for i in range(n):
        label, top = labels[rows[i]], _top_class(logits, i)
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
        power = missing**numbers.focal_gamma
        ratio = surprise / missing if missing > numbers.zero else numbers.one
        # -p f'(p), by which the gradient of cross-entropy is multiplied
        weight = power * (numbers.one + numbers.focal_gamma * ratio * logits[label, i] / total)
        for c in range(classes):
            logits[c, i] *= share * weight / total
        logits[label, i] = -share * weight * missing
        loss += power * surprise
        hits += top == label
    return loss / n, hits


@_compiled
def _mse(logits: Array, labels: Array, rows: Array, numbers: Numbers) -> Any:
    """Return mean loss and number of correct samples; replace logits by their gradient.

    The squared error of a sample with logits z is |z - onehot|^2 / 2.
    """
    classes, n = logits.shape
    share = numbers.one / logits.dtype.type(n)
    loss, hits = 0.0, 0
    for i in range(n):
        label, top = labels[rows[i]], _top_class(logits, i)
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
    """Call the Fortran function at an address; pass integers of type uintp as pointers."""

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
    """Compute C <- A B + beta C in place, with A or B transposed if `A_as` or `B_as` says so.

    The arrays are row-major; BLAS reads them as their transposes.
    """
    one, factor = C.dtype.type(1), C.dtype.type(beta)
    rows, columns = np.int32(C.shape[0]), np.int32(C.shape[1])
    inner = np.int32(A.shape[0] if A_as == TRANSPOSED else A.shape[1])
    a, b, c = A.ctypes.data, B.ctypes.data, C.ctypes.data
    wide_a, wide_b = np.int32(A.shape[1]), np.int32(B.shape[1])
    first = (np.uint8(B_as), np.uint8(A_as), columns, rows, inner)
    arguments = (*first, one, b, wide_b, a, wide_a, factor, c, columns)
    _call_by_reference(address, arguments)  # type: ignore[call-arg]
