"""Data: arrays on the device with weights, or batches that stream from the host.

Per-example weights count everywhere: N is their sum. Rows beyond ``count`` are padding, so data
of similar size can share one compiled program.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from ._util.admit import admit, admit_inputs, cast, check_finite, few_rows
from ._util.checks import whole_number
from ._util.noise import mix, noise_key


class Batch(eqx.Module):
    """What a step sees: inputs, targets, weights, and the place i = 0 … M−1 in the epoch.

    ``index`` says which example each row is, the same in every epoch: its row among arrays, its
    place in a stream (which has to come in the same order again). What a method draws once for
    every example it draws by this number.
    """

    x: Any
    y: jax.Array
    weight: jax.Array
    i: jax.Array
    index: Any = None  # (rows,)


def without_fold(batch: Batch, number: Any, folds: int) -> Batch:
    """The batch as the model of this number sees it, which leaves out one of the folds.

    Fold k has the examples whose number leaves the remainder k when divided by ``folds``, and
    model m leaves out fold m mod ``folds``.
    """
    seen = batch.index % folds != number % folds
    return eqx.tree_at(lambda b: b.weight, batch, batch.weight * seen)


class Place(NamedTuple):
    """Where a step's minibatch lies: its rows, which of them count, and i."""

    rows: jax.Array
    inside: Any
    i: jax.Array


class Data(eqx.Module):
    """Arrays with a leading axis of examples; rows from ``count`` on are padding."""

    x: Any
    y: jax.Array
    weight: jax.Array
    count: Any
    augment: Any = None  # what a minibatch's inputs go through: (key, x) → x

    def place(self, step: jax.Array, batch_size: int, batches: jax.Array, key: jax.Array) -> Place:
        """Which rows a step takes: a new permutation each epoch, computed for this batch alone.

        The last minibatch, where it is not full, goes on with the epoch's first rows, which do not
        count: a network that normalises over the batch sees examples, and each only once.
        """
        epoch, i = step // batches, step % batches
        position = i * batch_size + jnp.arange(batch_size, dtype=jnp.int32)
        inside = position < self.count
        order = jax.random.fold_in(noise_key(key), epoch)
        position = position % self.count
        return Place(shuffle(position, self.count, order), inside, i)

    def batch(self, place: Place) -> Batch:
        """The minibatch there: gathered by index, no copy of the data."""
        if place.rows.shape[-1] >= self.y.shape[0]:
            return self.everything()
        take = lambda a: jnp.take(a, place.rows, axis=0, mode="clip")  # noqa: E731
        weight = jnp.where(place.inside, take(self.weight), 0)
        return Batch(jax.tree.map(take, self.x), take(self.y), weight, place.i, place.rows)

    def everything(self) -> Batch:
        """The whole data as one batch."""
        rows = jnp.arange(self.y.shape[0], dtype=jnp.int32)
        return Batch(self.x, self.y, self.weight, jnp.zeros((), jnp.int32), rows)


class Padded:
    """Data that will grow: ``(x, y)`` with room for more rows, so that one program serves all.

    ``fit`` takes it where it takes ``(x, y)``. The empty rows count nowhere; ``batch_size`` may be
    larger than the data, and no larger than the room.

    Args:
        data: ``(x, y)`` or ``(x, y, weight)``.
        room: rows to make room for.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 5)[:, None].astype("float32")
        >>> line = px.networks.MLP(1, 1, (), key=0)
        >>> model = px.Model(line, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
        >>> few = px.data.Padded((x, x[:, 0]), room=16)
        >>> a = px.fit(model, few, px.Conjugate()).moments()[0].network.layers[0].weight
        >>> b = px.fit(model, (x, x[:, 0]), px.Conjugate()).moments()[0].network.layers[0].weight
        >>> bool(abs(a - b).max() < 1e-6)
        True
    """

    def __init__(self, data: tuple[Any, ...], room: int):
        self.data, self.room = data, whole_number("room", room)


class Stack(eqx.Module):
    """A few host batches side by side on the device: the window of a stream a chunk works on."""

    x: Any
    y: jax.Array
    weight: jax.Array
    first: Any
    augment: Any = None

    def place(self, step: jax.Array, batch_size: int, batches: jax.Array, key: jax.Array) -> Place:
        """Where the batch of a step lies: at ``step − first``."""
        return Place(step - self.first, None, step % batches)

    def batch(self, place: Place) -> Batch:
        """The batch there."""
        take = lambda a: jax.lax.dynamic_index_in_dim(a, place.rows, keepdims=False)  # noqa: E731
        rows = self.y.shape[1]
        index = place.i * rows + jnp.arange(rows, dtype=jnp.int32)
        return Batch(jax.tree.map(take, self.x), take(self.y), take(self.weight), place.i, index)


ROUNDS = 48


@partial(jax.jit, inline=True)  # its loop would be compiled anew by every call outside a program
def shuffle(index: jax.Array, count: Any, key: jax.Array) -> jax.Array:
    """A pseudo-random permutation of 0 … count−1, evaluated at ``index`` only.

    Swap-or-not (Hoang, Morris and Rogaway 2012): in each round every index is paired with a
    partner and a hashed coin decides whether the two change places. It needs no sort, no memory,
    and works for a ``count`` known only at run time.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from posterax.data import shuffle
        >>> order = shuffle(jnp.arange(10), 10, jax.random.key(0))
        >>> sorted(order.tolist())
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """
    n = jnp.asarray(count, jnp.uint32)
    bits = jax.random.bits(noise_key(key), (2, ROUNDS), jnp.uint32)
    pivots = bits[0] % jnp.maximum(n, 1)
    index = index.astype(jnp.uint32)

    def round_(r: Any, index: jax.Array) -> jax.Array:
        pivot = pivots[r]
        partner = jnp.where(index <= pivot, pivot - index, pivot + n - index)
        coin = mix(jnp.maximum(index, partner) ^ bits[1, r])
        return jnp.where(coin >> 31 == 1, partner, index)

    # a loop compiles faster; a GPU would launch a kernel for each of its rounds
    index = jax.lax.fori_loop(0, ROUNDS, round_, index, unroll=jax.default_backend() != "cpu")
    return index.astype(jnp.int32)


def is_batches(data: Any) -> bool:
    """Whether this is a list of (x, y) tuples: a source of batches, not one data set."""
    return isinstance(data, list) and all(isinstance(part, tuple | list) for part in data)


def as_stream(data: Any) -> "Stream":
    """A source of batches as a stream; what is no such source is refused.

    Example:
        >>> import numpy as np
        >>> from posterax.data import as_stream
        >>> as_stream([(np.zeros((4, 2)), np.zeros(4))]).batches
        1
    """
    if isinstance(data, Stream):
        return data
    if not hasattr(data, "__iter__") or isinstance(data, dict | str | np.ndarray | jax.Array):
        raise TypeError(
            "data must be (x, y), (x, y, weight) or a re-iterable source of such batches, got "
            f"{type(data).__name__}"
        )
    return Stream(data)


FEW_BATCHES, FEW_OF_BATCH = 256, 4  # batches and rows of each that tell what rounding does


class Stream:
    """A re-iterable source of batches, for data larger than memory.

    Args:
        source: anything that can be iterated again and again (a list of files' arrays, an object
            with ``__iter__``), giving ``(x, y)`` or ``(x, y, weight)``; no batch is larger than
            the first, smaller ones are padded with rows of weight 0.

    Example:
        >>> import numpy as np
        >>> from posterax.data import Stream
        >>> batches = [(np.zeros((4, 2)), np.zeros(4)), (np.zeros((3, 2)), np.zeros(3))]
        >>> stream = Stream(batches)
        >>> stream.batch_size, stream.batches, stream.total
        (4, 2, 7.0)
    """

    def __init__(self, source: Iterable[Any]):
        if iter(source) is source:
            raise TypeError(
                "data must be re-iterable: this iterator can be read once only; pass a list"
            )
        self.source = source
        self._iterator: Iterator[Any] = iter(())
        self._next = 0
        self.batches, self.total, self.batch_size = 0, 0.0, 0
        self.least = np.inf  # the smallest weight that is not 0
        rows, every = [], 1
        for x, y, weight in self._parts():
            if self.batches == 0:
                self.batch_size, self.example = len(y), (x, y)
            elif len(y) > self.batch_size:
                raise ValueError(
                    f"data: batch {self.batches} has {len(y)} rows and the first "
                    f"{self.batch_size}: no batch may be larger than the first"
                )
            elif (own := _row_shapes((x, y))) != (first := _row_shapes(self.example)):
                raise ValueError(
                    f"data: batch {self.batches} has examples of shapes {own}, the first {first}"
                )
            check_finite("x", x)
            check_finite("y", y)
            for name, tree in (("x", x), ("y", y)):  # refuse now what would end the fit later
                admit_inputs(tree, jnp.result_type(float), name)
            # whole numbers too large for 32 bits are floats, and then those of all batches are
            self.example = jax.tree.map(_as_second, self.example, (x, y))
            if self.batches % every == 0:
                rows.append(few_rows((x, y), FEW_OF_BATCH))
            if len(rows) > FEW_BATCHES:
                rows, every = rows[::2], 2 * every
            self.batches += 1
            self.total += float(np.sum(weight))
            self.least = min(self.least, least_weight(weight))
        if self.batches == 0:
            raise ValueError("data is empty: the source gave no batch")
        self.few = jax.tree.map(lambda *parts: np.concatenate(parts), *rows)

    def _parts(self) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
        for part in self.source:
            x, y, weight = unpack(part)
            yield x, y, weight

    def targets(self) -> Iterator[np.ndarray]:
        """The targets of each batch, for the checks of their values."""
        count = 0
        for count, (_, y, _) in enumerate(self._parts(), start=1):  # noqa: B007
            yield np.asarray(y)
        if count != self.batches:
            raise _not_again(self.batches, count)

    def window(
        self,
        start: int,
        stop: int,
        size: int,
        y_shape: tuple[int, ...],
        dtype: DTypeLike,
        augment: Any = None,
    ) -> Stack:
        """Batches ``start … stop−1`` (steps count on through the epochs) on the device.

        There are always ``size`` of them, the last repeated, so that all windows have one shape.
        """
        if start != self._next:
            self._iterator, self._next = iter(()), start - start % self.batches
        rows = []
        while self._next < stop:
            if self._next % self.batches == 0:
                self._iterator = self._parts()
            part = next(self._iterator, None)
            if part is None:
                raise _not_again(self.batches, self._next % self.batches)
            if self._next >= start:
                rows.append(self._padded(part, y_shape, dtype))
            self._next += 1
        rows += [rows[-1]] * (size - len(rows))
        stacked = jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *rows)
        x, y, weight = stacked
        return Stack(x, y, weight, jnp.asarray(start, jnp.int32), augment)

    def _padded(self, part: PyTree, y_shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        x, y, weight = part
        x, y = jax.tree.map(_as_second, (x, y), self.example)
        missing = self.batch_size - len(y)
        weight = np.concatenate([weight, np.zeros(missing)])
        y = pad_rows(y, self.batch_size).reshape(self.batch_size, *y_shape)
        return (
            jax.tree.map(lambda a: cast(pad_rows(np.asarray(a), self.batch_size), dtype), x),
            cast(y, dtype, "y"),
            weight.astype(dtype),
        )


def _as_second(a: Any, b: Any) -> Any:
    """``a`` as a float where ``b`` is one."""
    floating = jnp.issubdtype(b.dtype, jnp.floating) and not jnp.issubdtype(a.dtype, jnp.floating)
    return a.astype(b.dtype) if floating else a


def _not_again(batches: int, now: int) -> ValueError:
    return ValueError(
        f"data must be re-iterable: the source gave {batches} batches when it was first read and "
        f"{now} now"
    )


def _row_shapes(tree: PyTree) -> list[tuple[int, ...]]:
    return [tuple(np.shape(leaf)[1:]) for leaf in jax.tree.leaves(tree)]


def unpack(data: Any, name: str = "data") -> tuple[Any, Any, Any]:
    """Split ``(x, y)`` or ``(x, y, weight)`` and check that the lengths agree."""
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        raise TypeError(
            f"{name} must be (x, y) or (x, y, weight), got {type(data).__name__}"
            + (f" of length {len(data)}" if isinstance(data, tuple | list) else "")
        )
    x, y = admit_inputs(data[0]), admit(data[1], "y")
    if np.ndim(y) == 0:
        raise ValueError(f"y must have one entry per example, got a single number in {name}")
    n = len(y)
    leaves = jax.tree.leaves(x)
    if not leaves:
        raise ValueError(f"x holds no array in {name}")
    for leaf in leaves:
        if np.ndim(leaf) == 0 or len(leaf) != n:
            raise ValueError(
                f"x and y must have the same number of examples, got x of shape "
                f"{np.shape(leaf)} and y of shape {np.shape(y)}"
            )
    if n == 0:
        raise ValueError(f"{name} is empty: x has shape {np.shape(leaves[0])}")
    weight = np.ones(n) if len(data) == 2 or data[2] is None else admit(data[2], "weight")
    if np.shape(weight) != (n,):
        raise ValueError(f"weight must have shape ({n},), got {np.shape(weight)}")
    check_finite("weight", weight)
    least, most = float(np.min(weight)), float(np.max(weight))
    if least < 0 or most == 0:
        raise ValueError(
            f"weight must be 0 or more, and not all 0, got values from {least:g} to {most:g}"
        )
    return x, y, weight


def least_weight(weight: Any) -> float:
    """The smallest weight that is not 0."""
    host = np.asarray(weight, np.float64)
    return float(np.min(host, where=host > 0, initial=np.inf))


def check_weights(least: float, total: float, dtype: DTypeLike) -> None:
    """Refuse weights that the fit's precision makes 0 or infinite.

    Example:
        >>> from posterax.data import check_weights
        >>> check_weights(1e-46, 3.0, "float32")
        Traceback (most recent call last):
        ...
        ValueError: weight holds 1e-46, which is 0 in float32: scale all weights, or set it to 0
    """
    info, name = jnp.finfo(dtype), np.dtype(dtype)
    if least < float(info.tiny):
        raise ValueError(
            f"weight holds {least:g}, which is 0 in {name}: scale all weights, or set it to 0"
        )
    if total > float(info.max):
        raise ValueError(f"weight sums to {total:g}, which is beyond {name}: scale all weights")


def bucket(n: int) -> int:
    """The shared size ``n`` is padded to, at most an eighth larger: few programs serve any ``n``.

    Example:
        >>> from posterax.data import bucket
        >>> [bucket(n) for n in (1, 7, 100, 1000, 10_000)]
        [1, 8, 104, 1024, 10240]
    """
    step = 1 << max(n.bit_length() - 4, 0)
    return 1 << (n - 1).bit_length() if n <= 8 else -(-n // step) * step


def pad_rows(a: PyTree, size: int) -> Any:
    """``a`` with its rows repeated, from the first on, until there are ``size``."""
    missing = size - len(a)
    if missing == 0:
        return a
    if isinstance(a, jax.Array):
        return jnp.pad(a, [(0, missing)] + [(0, 0)] * (a.ndim - 1), mode="wrap")
    return np.concatenate([a, np.resize(a, (missing, *a.shape[1:]))])


def float_dtype(x: PyTree, params: PyTree) -> Any:
    """float64 when the inputs are and JAX allows it, else the parameters' own type."""
    floats = [a.dtype for a in jax.tree.leaves(x)]
    if jax.config.read("jax_enable_x64") and any(d == np.float64 for d in floats):
        return np.dtype(np.float64)
    leaves = jax.tree.leaves(params)
    return np.dtype(leaves[0].dtype) if leaves else np.dtype(np.float32)
