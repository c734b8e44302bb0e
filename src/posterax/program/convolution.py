r"""A convolution, and the gradient of max pooling, by the operations that a CPU is fast at.

Axes lie as XLA's fast convolution has them: images (examples, space …, channels), kernels
(space …, inputs, outputs). Every way gives the same numbers up to the order of additions; which one
is taken goes by shapes. The bounds below were chosen by time on one processor (2 cores, AVX-512).
"""

from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

FEW = 4  # channels: so few leave XLA's convolution without work
SOME, MORE = 6, 20  # channels of a result, and of what it is made of: so few do too
TAPS = range(8, 129)  # rows of a matrix of patches that is worth its making
MOST_TAPS = 64  # of a depthwise kernel
PATCH_BYTES = 16 * 2**20  # of patches at a time
SHIFT_BYTES = 4 * 2**20  # of what is to be shifted at a time
PART, MOST_PARTS = 8, 16  # examples in a part of a kernel's gradient, and the most parts
MOST_GROUPS = 16  # convolutions written one after another; more of them are a loop


class Window(NamedTuple):
    """How a kernel goes over images, an entry for each axis of space."""

    strides: Sequence[int]
    padding: Sequence[tuple[int, int]]
    lhs_dilation: Sequence[int]
    rhs_dilation: Sequence[int]

    def output(self, image: Sequence[int], kernel: Sequence[int]) -> list[int]:
        """The size of the outputs' space."""
        inside = [max(n - 1, 0) * d + 1 for n, d in zip(image, self.lhs_dilation, strict=True)]
        across = [(n - 1) * d + 1 for n, d in zip(kernel, self.rhs_dilation, strict=True)]
        rows = zip(inside, across, self.padding, self.strides, strict=True)
        return [(n + low + high - k) // stride + 1 for n, k, (low, high), stride in rows]


class Options(NamedTuple):
    """What a product of arrays is asked for besides."""

    precision: Any
    preferred_element_type: Any


def convolve(images: jax.Array, kernel: jax.Array, window: Window, options: Options) -> jax.Array:
    """A convolution without groups; a kernel's gradient in parts.

    Where the channels are the examples of a network and the window is larger than the result (a
    gradient with respect to a kernel is such a convolution), some examples at a time stay in the
    processor's cache.
    """
    _, *space, channels = images.shape
    *taps, _, _ = kernel.shape
    parts = min(MOST_PARTS, channels // PART)
    wide = prod(window.output(space, taps)) < prod(taps)
    if not wide or parts < 2 or channels % parts:
        return channels_last(images, kernel, window, options)
    split = zip(jnp.split(images, parts, -1), jnp.split(kernel, parts, -2), strict=True)
    results = [channels_last(*part, window, options) for part in split]
    return sum(results[1:], results[0])


def channels_last(
    images: jax.Array, kernel: jax.Array, window: Window, options: Options, **groups: Any
) -> jax.Array:
    """XLA's convolution, with the axes as it is fast at."""
    rank = images.ndim
    last = (0, rank - 1, *range(1, rank - 1))
    numbers = lax.ConvDimensionNumbers(last, (rank - 1, rank - 2, *range(rank - 2)), last)
    named: Any = {**options._asdict(), **groups, "dimension_numbers": numbers}
    return lax.conv_general_dilated(images, kernel, *window, **named)


def by_patches(
    images: jax.Array, kernel: jax.Array, window: Window, options: Options
) -> jax.Array | None:
    """A convolution of images with few channels, as one product with their patches.

    Gives (outputs, examples, space …), or ``None`` where this is not the faster way. Patches are
    made for some examples at a time.
    """
    _, *space, channels = images.shape
    *taps, _, outputs = kernel.shape
    rows, after = prod(taps) * channels, window.output(space, taps)
    size = rows * prod(after) * images.dtype.itemsize
    if channels > FEW or rows not in TAPS or size > PATCH_BYTES or prod(after) < prod(taps):
        return None
    weights = kernel.reshape(rows, outputs)

    def multiply(part: jax.Array) -> jax.Array:
        patches = _slices(part, taps, window.rhs_dilation, after, window.strides, window)
        result = _product(weights, patches.reshape(rows, -1), 0, 0, options)
        return result.reshape(outputs, len(part), *after)

    return _some_at_a_time(multiply, images, size, PATCH_BYTES, 1)


def by_shifts(
    images: jax.Array, kernel: jax.Array, window: Window, options: Options
) -> jax.Array | None:
    """A convolution to few channels, as one product and sums of its shifted parts.

    Every pixel meets every tap in a product, whose rows are then added up where they belong, one
    axis of space after the other. ``None`` where this is not the faster way.
    """
    _, *space, channels = images.shape
    *taps, _, outputs = kernel.shape
    after, rank = window.output(space, taps), len(taps)
    columns, alone = prod(taps) * outputs, {*window.strides, *window.lhs_dilation} == {1}
    size = prod(space) * columns * images.dtype.itemsize
    few = outputs <= SOME and outputs < channels <= MORE and prod(taps) in TAPS
    some = min(*space, *after) > 0 and prod(space) <= prod(after)
    if not (alone and few and some) or size > PATCH_BYTES:
        return None
    weights = jnp.moveaxis(kernel, -2, 0).reshape(channels, columns)

    def multiply(part: jax.Array) -> jax.Array:
        met = _product(part.reshape(-1, channels), weights, 1, 0, options)
        total = met.reshape(-1, *space, *taps, outputs)
        for axis, step in enumerate(window.rhs_dilation):
            low, terms = window.padding[axis][0], []
            for tap in range(taps[axis]):
                # what lies at a pixel goes to the pixel of the outputs where the tap meets it
                term = lax.index_in_dim(total, tap, 1 + rank, keepdims=False)
                fill, before = [(0, 0, 0)] * term.ndim, low - tap * step
                fill[1 + axis] = (before, after[axis] - space[axis] - before, 0)
                terms.append(lax.pad(term, jnp.zeros((), term.dtype), fill))
            total = sum(terms[1:], terms[0])
        return total

    # two parts at least: out of a loop the sums come made, else they are made again at every use
    most = min(SHIFT_BYTES, -(-len(images) // 2) * size)
    return _some_at_a_time(multiply, images, size, most, 0)


def gradient_by_patches(
    images: jax.Array, errors: jax.Array, window: Window, options: Options
) -> jax.Array | None:
    """The gradient with respect to a kernel for few channels, as one product with patches.

    Here images are (inputs, space …, examples) and errors (space …, examples, outputs). ``None``
    where this is not the faster way.
    """
    inputs, *space, examples = images.shape
    *size, _, outputs = errors.shape
    taps = window.output(space, size)
    rows = prod(taps) * inputs
    whole = rows * prod(size) * examples * images.dtype.itemsize
    if inputs > FEW or rows not in TAPS or prod(taps) >= prod(size) or whole > PATCH_BYTES:
        return None
    usual = jnp.moveaxis(jnp.moveaxis(images, 0, -1), -2, 0)  # examples first, channels last
    patches = _slices(usual, taps, window.strides, size, window.rhs_dilation, window)
    flat = jnp.moveaxis(errors, -1, 0)
    flat = jnp.moveaxis(flat, -1, 1).reshape(outputs, -1)  # as patches: examples, then space
    result = _product(patches.reshape(rows, -1), flat, 1, 1, options)
    return jnp.moveaxis(result.reshape(*taps, inputs, outputs), -2, 0)


def in_groups(
    images: jax.Array, kernel: jax.Array, window: Window, options: Options, groups: int
) -> jax.Array:
    """A convolution of each group of channels with kernels of its own."""
    *taps, inputs, outputs = kernel.shape
    size = window.output(images.shape[1:-1], taps)
    if inputs == 1 and prod(taps) <= MOST_TAPS and min(size) > 0:
        # a depthwise one: nothing is summed but taps
        wide = jnp.repeat(images, outputs // groups, -1)
        met = _cut(wide, 1, taps, window.rhs_dilation, size, window.strides, window)
        terms = [a * w for a, w in zip(met, kernel.reshape(-1, outputs), strict=True)]
        return sum(terms[1:], terms[0])
    return _by_group(images, -1, kernel, window, options, groups)


def in_batch_groups(
    images: jax.Array, kernel: jax.Array, window: Window, options: Options, groups: int
) -> jax.Array:
    """A convolution of each group of examples with kernels of its own."""
    return _by_group(images, 0, kernel, window, options, groups)


def _by_group(
    images: jax.Array, axis: int, kernel: jax.Array, window: Window, options: Options, groups: int
) -> jax.Array:
    parts = jnp.split(images, groups, axis), jnp.split(kernel, groups, -1)
    if groups <= MOST_GROUPS:
        each = [convolve(a, w, window, options) for a, w in zip(*parts, strict=True)]
        return jnp.concatenate(each, -1)
    stacked = jnp.stack(parts[0]), jnp.stack(parts[1])
    results = lax.map(lambda part: convolve(part[0], part[1], window, options), stacked)
    last = jnp.moveaxis(results, 0, -2)
    return last.reshape(*last.shape[:-2], kernel.shape[-1])


def pooling_gradient(errors: jax.Array, x: jax.Array, size: Sequence[int]) -> jax.Array:
    """Errors put where each window has its largest entry, the first where there are several.

    For windows side by side. An entry asks for its own place among those of its window, so that x
    is read once: XLA would make all of it again for every slice.
    """
    covered = lax.slice(x, [0] * x.ndim, [n * k for n, k in zip(errors.shape, size, strict=True)])
    apart = tuple(range(1, 2 * x.ndim, 2))
    inner = [n for pair in zip(errors.shape, size, strict=True) for n in pair]

    def up(a: jax.Array) -> jax.Array:
        return lax.broadcast_in_dim(a, inner, range(0, 2 * x.ndim, 2)).reshape(covered.shape)

    def reduce(a: jax.Array, start: Any, operation: Any) -> jax.Array:
        return lax.reduce_window(a, start, operation, size, size, "VALID")

    # floats, for which a CPU has fast windows; all of them whole
    places = [lax.broadcasted_iota(jnp.float32, inner, place) for place in apart]
    own = sum(place * prod(size[axis + 1 :]) for axis, place in enumerate(places))
    own = jnp.asarray(own, jnp.float32).reshape(covered.shape)
    largest = covered == up(reduce(x, -jnp.inf, lax.max))
    first = reduce(jnp.where(largest, own, jnp.inf), jnp.inf, lax.min)
    zero = jnp.zeros((), errors.dtype)
    total = jnp.where(own == up(first), up(errors), zero)
    rest = [(0, n - k, 0) for n, k in zip(x.shape, covered.shape, strict=True)]
    return lax.pad(total, zero, rest)


def _some_at_a_time(
    way: Callable[[jax.Array], jax.Array], images: jax.Array, size: int, most: int, axis: int
) -> jax.Array:
    """A way over some examples at a time: with ``size`` bytes each, no more than ``most``.

    Results have the examples on this axis.
    """
    examples = len(images)
    each = max(1, most // max(size, 1))
    parts = -(-examples // each)
    if parts <= 1:
        return way(images)
    each = -(-examples // parts)
    filled = jnp.pad(images, [(0, parts * each - examples)] + [(0, 0)] * (images.ndim - 1))
    results = lax.map(way, filled.reshape(parts, each, *images.shape[1:]))
    joined = jnp.moveaxis(results, 0, axis)
    shape = (*joined.shape[:axis], parts * each, *joined.shape[axis + 2 :])
    return lax.slice_in_dim(joined.reshape(shape), 0, examples, axis=axis)


def _product(a: jax.Array, b: jax.Array, i: int, j: int, options: Options) -> jax.Array:
    return lax.dot_general(a, b, (((i,), (j,)), ((), ())), **options._asdict())


def _slices(
    images: jax.Array, taps: Sequence[int], steps: Sequence[int], size: Sequence[int],
    strides: Sequence[int], window: Window,
) -> jax.Array:  # fmt: skip
    """For each tap what it meets: (taps, channels, examples, space …)."""
    return jnp.stack(_cut(jnp.moveaxis(images, -1, 0), 2, taps, steps, size, strides, window))


def _cut(
    images: jax.Array, place: int, taps: Sequence[int], steps: Sequence[int], size: Sequence[int],
    strides: Sequence[int], window: Window,
) -> list[jax.Array]:  # fmt: skip
    """For each tap what it meets, of images whose space begins at some place among the axes."""
    end = place + len(taps)
    around = zip(window.padding, window.lhs_dilation, strict=True)
    fill = [(low, high, d - 1) for (low, high), d in around]

    def among(inside: Sequence[Any], outside: Sequence[Any]) -> list[Any]:
        return [*outside[:place], *inside, *outside[end:]]

    padded = lax.pad(images, jnp.zeros((), images.dtype), among(fill, [(0, 0, 0)] * images.ndim))
    shape, by = among(size, images.shape), among(strides, [1] * images.ndim)
    starts = product(*(range(0, n * step, step) for n, step in zip(taps, steps, strict=True)))
    cut = []
    for start in starts:
        first = among(start, [0] * images.ndim)
        last = [f + (n - 1) * s + 1 for f, n, s in zip(first, shape, by, strict=True)]
        cut.append(lax.slice(padded, first, last, by))
    return cut
