r"""Convolutions and pooling as a CPU runs them fast.

XLA has a fast convolution for CPUs, and takes it only where the axes lie as (examples, space,
channels). It moves them there itself, but not inside a loop: there a convolution with its channels
first runs 10 to 40 times as slow. A fit is a loop. So this pass moves the axes, for every
convolution of a program whoever wrote it, those of gradients too. What lies between two
convolutions (activations, normalisation, sums) is done on the axes as they lie; they are moved back
where an operation asks for their order. ``convolution`` has the ways to compute one.

The gradient of max pooling is rewritten as well: XLA goes through its windows entry by entry.
Nothing but the order of additions changes.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from .._util.jax_names import ClosedJaxpr, Jaxpr, JaxprEqn, bind, shaped
from .convolution import (
    Options,
    Window,
    by_patches,
    by_shifts,
    channels_last,
    convolve,
    gradient_by_patches,
    in_batch_groups,
    in_groups,
    pooling_gradient,
)
from .walker import LOOPS, PLAIN_CALLS, equations, walk

CHECKPOINTS = ("remat2", "checkpoint")  # these stay what they are
CALLS = {*PLAIN_CALLS, "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"} - {
    *CHECKPOINTS
}

Axes = tuple[int, ...]


class Laid(NamedTuple):
    """A value whose axes lie in an order of their own."""

    array: Any
    axes: Axes  # which axis of the value each axis of the array is


def rewrite(program: ClosedJaxpr) -> ClosedJaxpr:
    """The same program with its convolutions and poolings as a CPU runs them fast."""
    if not any(eqn.primitive.name in SLOW for eqn in equations(program.jaxpr)):
        return program

    def run(*arguments: Any) -> list[Any]:
        given = [_plain(a) for a in arguments]
        results = walk(program, given, _rule, constant=_plain, enter=_enter)
        return [_in_order(value) for value in results]

    avals = [shaped(v) for v in program.jaxpr.invars]
    return jax.make_jaxpr(run)(*avals)


# -- the walk


def _enter(eqn: JaxprEqn, inputs: list[Laid]) -> bool:
    return eqn.primitive.name in CALLS


def _rule(eqn: JaxprEqn, inputs: list[Laid]) -> Sequence[Laid]:
    name = eqn.primitive.name
    rule = RULES.get(name)
    if rule is not None:
        result = rule(eqn, inputs)
        if result is not None:
            return [result]
    values = [_in_order(value) for value in inputs]
    if name in (*LOOPS, *CHECKPOINTS):
        eqn = eqn.replace(params={k: _inside(v) for k, v in eqn.params.items()})
    return [_plain(value) for value in bind(eqn, values)]


def _inside(param: Any) -> Any:
    """A parameter of an equation with the programs in it rewritten."""
    if isinstance(param, ClosedJaxpr):
        return rewrite(param)
    if isinstance(param, Jaxpr) and not param.constvars:
        new = rewrite(ClosedJaxpr(param, ()))
        return param if new.consts else new.jaxpr
    if isinstance(param, tuple) and any(isinstance(p, ClosedJaxpr) for p in param):
        return tuple(_inside(p) for p in param)
    return param


def _plain(value: Any) -> Laid:
    return Laid(value, tuple(range(jnp.ndim(value))))


def _moved(value: Laid, axes: Sequence[int]) -> Any:
    """The array of a value with its axes in another order."""
    if tuple(axes) == value.axes:
        return value.array
    return lax.transpose(value.array, [value.axes.index(axis) for axis in axes])


def _in_order(value: Laid) -> Any:
    return _moved(value, sorted(value.axes))


def _kept(axes: Axes, gone: Sequence[int]) -> Axes:
    """Axes as they are counted when some are gone."""
    return tuple(axis - sum(g < axis for g in gone) for axis in axes if axis not in gone)


# -- rules, each for one kind of operation


def _elementwise(eqn: JaxprEqn, inputs: list[Laid]) -> Laid | None:
    rank = max(len(value.axes) for value in inputs)
    full = [value for value in inputs if len(value.axes) == rank]
    axes = next((v.axes for v in full if v.axes != tuple(sorted(v.axes))), full[0].axes)
    arrays = [_moved(v, axes) if len(v.axes) == rank else v.array for v in inputs]
    return Laid(bind(eqn, arrays)[0], axes)


def _transpose(eqn: JaxprEqn, inputs: list[Laid]) -> Laid | None:
    (value,), order = inputs, eqn.params["permutation"]
    return Laid(value.array, tuple(order.index(axis) for axis in value.axes))


def _reduction(eqn: JaxprEqn, inputs: list[Laid]) -> Laid | None:
    (value,), gone = inputs, eqn.params["axes"]
    places = tuple(sorted(value.axes.index(axis) for axis in gone))
    array = eqn.primitive.bind(value.array, **(eqn.params | {"axes": places}))
    return Laid(array, _kept(value.axes, gone))


def _squeeze(eqn: JaxprEqn, inputs: list[Laid]) -> Laid | None:
    (value,), gone = inputs, eqn.params["dimensions"]
    places = [value.axes.index(axis) for axis in gone]
    return Laid(lax.squeeze(value.array, places), _kept(value.axes, gone))


def _broadcast(eqn: JaxprEqn, inputs: list[Laid]) -> Laid | None:
    value, *more = inputs
    if more or value.axes == tuple(sorted(value.axes)):
        return None
    places, shape = eqn.params["broadcast_dimensions"], eqn.params["shape"]
    # new axes come first, those that were there keep their order
    new = [axis for axis in range(len(shape)) if axis not in places]
    axes = (*new, *(places[axis] for axis in value.axes))
    array = lax.broadcast_in_dim(
        value.array, [shape[axis] for axis in axes], range(len(new), len(axes))
    )
    return Laid(array, axes)


def _reshape(eqn: JaxprEqn, inputs: list[Laid]) -> Laid | None:
    (value,) = inputs
    if value.axes == tuple(sorted(value.axes)) or eqn.params["dimensions"] is not None:
        return None
    before, after = shaped(eqn.invars[0]).shape, shaped(eqn.outvars[0]).shape
    if 0 in before:
        return None
    # axes of length 1 may come and go anywhere; those that come are put first
    lying = [axis for axis in value.axes if before[axis] > 1]
    axes = [axis for axis, size in enumerate(after) if size == 1]
    groups = {old[0]: (old, new) for old, new in _factors(before, after)}
    while lying:
        old, new = groups.get(lying[0], ([], []))
        if not old or lying[: len(old)] != old:
            return None  # what becomes one axis does not lie together
        lying, axes = lying[len(old) :], axes + new
    return Laid(lax.reshape(value.array, [after[axis] for axis in axes]), tuple(axes))


def _factors(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Which axes become which in a reshape: the smallest groups of equal size, longer than 1."""
    left, right = ([a for a, n in enumerate(shape) if n > 1] for shape in (before, after))
    groups = []
    while left:
        old, new = [left.pop(0)], [right.pop(0)]
        while (a := prod(before[i] for i in old)) != (b := prod(after[i] for i in new)):
            (old if a < b else new).append((left if a < b else right).pop(0))
        groups.append((old, new))
    return groups


def _by_axis(*names: str) -> Callable[[JaxprEqn, list[Laid]], Laid | None]:
    """The rule of an operation with parameters that have an entry for every axis."""

    def rule(eqn: JaxprEqn, inputs: list[Laid]) -> Laid | None:
        first, *rest = inputs
        rank = len(first.axes)
        arrays = [_moved(v, first.axes) if len(v.axes) == rank else v.array for v in rest]
        params = {
            name: tuple(eqn.params[name][axis] for axis in first.axes)
            for name in names
            if eqn.params[name] is not None
        }
        return Laid(eqn.primitive.bind(first.array, *arrays, **(eqn.params | params)), first.axes)

    return rule


def _concatenate(eqn: JaxprEqn, inputs: list[Laid]) -> Laid | None:
    axes = next((v.axes for v in inputs if v.axes != tuple(sorted(v.axes))), inputs[0].axes)
    arrays = [_moved(v, axes) for v in inputs]
    return Laid(lax.concatenate(arrays, axes.index(eqn.params["dimension"])), axes)


def _convolution(eqn: JaxprEqn, inputs: list[Laid]) -> Laid | None:
    (lhs, rhs), params = inputs, eqn.params
    if not jnp.issubdtype(lhs.array.dtype, jnp.floating):
        return None
    numbers = params["dimension_numbers"]
    first, second, *space = numbers.out_spec
    images = _moved(lhs, (numbers.lhs_spec[0], *numbers.lhs_spec[2:], numbers.lhs_spec[1]))
    kernel = _moved(rhs, (*numbers.rhs_spec[2:], numbers.rhs_spec[1], numbers.rhs_spec[0]))
    window = Window(*(params[name] for name in WINDOW_OF_CONVOLUTION))
    options = Options(params["precision"], params["preferred_element_type"])
    usual = (first, *space, second)
    if lhs.array.dtype.itemsize < 4:  # parts would be added up in less precision than XLA's
        groups = {name: params[name] for name in ("feature_group_count", "batch_group_count")}
        return Laid(channels_last(images, kernel, window, options, **groups), usual)
    for name, way in (("feature", in_groups), ("batch", in_batch_groups)):
        groups = params[f"{name}_group_count"]
        if groups > 1:
            return Laid(way(images, kernel, window, options, groups), usual)
    patched = by_patches(images, kernel, window, options)
    if patched is not None:
        return Laid(patched, (second, first, *space))
    result = gradient_by_patches(images, kernel, window, options)
    if result is None:
        result = by_shifts(images, kernel, window, options)
    if result is None:
        result = convolve(images, kernel, window, options)
    return Laid(result, usual)


def _pooling_gradient(eqn: JaxprEqn, inputs: list[Laid]) -> Laid | None:
    (errors, x), params = inputs, eqn.params
    size, strides, padding = (params[name] for name in WINDOW[:3])
    usual = params["select_prim"].name == "ge" and jnp.issubdtype(x.array.dtype, jnp.floating)
    if not usual or size != strides or any(map(any, padding)):
        return _by_axis(*WINDOW[:3])(eqn, inputs)
    own = [size[axis] for axis in x.axes]
    return Laid(pooling_gradient(_moved(errors, x.axes), x.array, own), x.axes)


ELEMENTWISE = (
    *("add", "sub", "mul", "div", "rem", "pow", "max", "min", "atan2", "nextafter", "add_any"),
    *("neg", "sign", "abs", "floor", "ceil", "round", "exp", "exp2", "log", "expm1", "log1p"),
    *("tanh", "logistic", "sin", "cos", "tan", "sqrt", "rsqrt", "cbrt", "square", "integer_pow"),
    *("erf", "erfc", "erf_inv", "is_finite", "not", "and", "or", "xor", "eq", "ne", "lt", "le"),
    *("gt", "ge", "select_n", "clamp", "convert_element_type", "copy", "stop_gradient"),
    *("reduce_precision", "lgamma", "digamma", "sinh", "cosh", "asinh", "acosh", "atan", "atanh"),
)
WINDOW = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
WINDOW_OF_CONVOLUTION = ("window_strides", "padding", "lhs_dilation", "rhs_dilation")
RULES: dict[str, Callable[[JaxprEqn, list[Laid]], Laid | None]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod"), _reduction),
    **dict.fromkeys(("reduce_and", "reduce_or"), _reduction),
    "transpose": _transpose,
    "squeeze": _squeeze,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "slice": _by_axis("start_indices", "limit_indices", "strides"),
    "pad": _by_axis("padding_config"),
    "reduce_window_sum": _by_axis(*WINDOW),
    "reduce_window_max": _by_axis(*WINDOW),
    "reduce_window_min": _by_axis(*WINDOW),
    "concatenate": _concatenate,
    "conv_general_dilated": _convolution,
    "select_and_scatter_add": _pooling_gradient,
}
SLOW = ("conv_general_dilated", "select_and_scatter_add")
