"""The machinery behind a predictive: blocks of inputs, groups of samples, units of the targets."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from .._util.memory import explain_out_of_memory
from ..data import as_array, bucket, check_finite, pad_rows
from ..model import Model
from ..networks.footprint import footprint
from . import quantiles as qt
from . import reductions as rd
from .block import Particles, reduce_block
from .joined import Joined, Moments

LEAST_ROWS = 256  # fewer inputs at once, and making the weights costs more than using them


class Targets(NamedTuple):
    """The shape of one target as the user gave it, and as the likelihood holds it."""

    given: tuple[int, ...]
    inner: tuple[int, ...]


class Units(NamedTuple):
    """y as people have it is shift + scale · y as the model has it.

    Both are shaped like one target; once ``widened``, the shift is another for each input.
    """

    shift: np.ndarray
    scale: np.ndarray

    def of(self, y: np.ndarray) -> np.ndarray:
        return self.shift + self.scale * y


class Streamed:
    """Summaries of p(y | x, D), computed block by block."""

    def __init__(
        self,
        source: Any,
        x: Any,
        particles: Particles,
        key: jax.Array,
        *,
        draws: int | None = None,
        block_bytes: int | None = None,
        least_rows: int = 1,
    ):
        self._source = source.bare()
        self._model: Model = source.model
        self._x = x
        self._particles = particles
        self._key = key
        self._targets: Targets = source.targets
        self._block_bytes = block_bytes or default_block_bytes()
        self._least_rows = least_rows
        self._units: Units | None = None
        self._temperature: jax.Array | None = None
        self._moments: Moments | None = None
        self.samples = len(particles.weights)
        self._draws = draws or self.samples

    def __len__(self) -> int:
        return len(jax.tree.leaves(self._x)[0])

    def at(self, rows: Any) -> Self:
        """The predictive at some of its inputs, by their numbers."""
        rows = np.asarray(rows, np.int64)
        view = copy.copy(self)
        view._x = jax.tree.map(lambda a: a[rows], self._x)
        view._moments = None
        if self._units is not None and np.ndim(self._units.shift) > len(self._targets.given):
            view._units = self._units._replace(shift=self._units.shift[rows])
        return view

    @property
    def kind(self) -> str:
        """``"regression"``, ``"counts"`` or ``"classification"``."""
        return self._model.likelihood.kind

    @property
    def _summary(self) -> Moments:
        if self._moments is None:
            moments = self._merged_moments()
            if self.kind != "classification":
                moments = Moments(*(self._in_shape(part) for part in moments))
            if self._units is not None:
                square = np.square(self._units.scale)
                moments = Moments(self._units.of(moments.mean), *(square * v for v in moments[1:]))
            self._moments = moments
        return self._moments

    def _places(self, of_classes: Callable[..., Any], of_y: Callable[..., Any], at: Any) -> Any:
        reduce = of_classes if self.kind == "classification" else of_y
        found = self._stream(reduce, None, jnp.asarray(at), max(self.samples, qt.DRAWS))[0]
        found = np.moveaxis(found, 1, 0)
        if self.kind != "classification":
            found = np.stack([self._in_shape(part) for part in found])
        return found if self._units is None else self._units.of(found)

    def _only(self, kind: str, name: str) -> None:
        if self.kind != kind:
            raise ValueError(f"{name} is for {kind}; this predictive is of {self.kind}")

    def _not_for_classes(self, name: str, instead: str) -> None:
        if self.kind == "classification":
            raise ValueError(f"{name} is for regression and counts; {instead}")

    def _inner_targets(self, y: Any) -> np.ndarray:
        """Targets as the likelihood has them, once their shape and their values fit."""
        y = np.asarray(as_array(y, "y"))
        given, inner = self._targets
        accepted = {given, inner} | ({(), (1,)} if inner in ((), (1,)) else set())
        if y.ndim == 0 or len(y) != len(self) or y.shape[1:] not in accepted:
            raise ValueError(f"y must have shape {(len(self), *given)}, got {y.shape}")
        check_finite("y", y)
        if self._units is not None:
            y = (y.reshape(-1, *given) - self._units.shift) / self._units.scale
        self._model.likelihood.check_values(y, self._model.output_shape(self._x))
        return y.reshape(len(y), *inner)

    def _log_scale(self) -> float:
        """What a density loses in the user's units: dy′ = dy / scale."""
        if self._units is None:
            return 0.0
        return float(np.sum(np.log(np.broadcast_to(self._units.scale, self._targets.given))))

    def _groups(self) -> "list[Streamed]":
        """Views of some of the samples each, where a block of all of them has few inputs."""
        most = self._block_bytes // self._bytes_per_input(self.samples)
        if most >= min(LEAST_ROWS, len(self)):
            return [self]
        # pairs of opposite samples stay together
        size = max(2, self.samples * max(most, 1) // LEAST_ROWS // 2 * 2)
        groups = []
        for start in range(0, self.samples, size):
            rows = slice(start, start + size)
            group = copy.copy(self)
            group._particles = jax.tree.map(lambda a, rows=rows: a[rows], self._particles)
            group.samples = len(group._particles.weights)
            groups.append(group)
        return groups

    def _merged_moments(self) -> Moments:
        """Moments over all samples; those of groups are joined as in ``RunningPredictive``."""
        classes = self.kind == "classification"
        reduce = rd.class_moments if classes else rd.moments
        groups = self._groups()
        if len(groups) == 1:
            return Moments(*self._stream(reduce))
        joined = Joined(classes)
        for group in groups:
            share = float(np.sum(np.asarray(group._particles.weights, np.float64)))
            if share > 0:
                group._particles = group._particles._replace(
                    weights=group._particles.weights / share
                )
                joined.add(Moments(*group._stream(reduce)), share)
        return joined.moments()

    def _in_shape(self, part: np.ndarray) -> np.ndarray:
        return part.reshape(len(part), *self._targets.given)

    def _stream(
        self, reduce: Callable[..., Any], y: Any = None, extra: Any = None, width: int = 0
    ) -> list[Any]:
        """Run ``reduce`` over blocks of inputs, padded to shared sizes; ``width`` draws wide."""
        n = len(self)
        per_input = self._bytes_per_input(max(self.samples, width))
        most = max(1, self._block_bytes // per_input)
        size = max(bucket(-(-n // -(-n // most))), self._least_rows)
        parts = []
        with explain_out_of_memory(
            f"predicting {n} inputs in blocks of {size} with {self.samples} samples",
            size * per_input,
        ):
            for start in range(0, n, size):
                rows = slice(start, min(start + size, n))
                got = rows.stop - rows.start
                block = jax.tree.map(lambda a, r=rows: pad_rows(a[r], size), self._x)
                y_block = None if y is None else pad_rows(y[rows], size)
                reduced = reduce_block(
                    reduce, self._source, block, y_block, self._particles,
                    self._temperature, jax.random.fold_in(self._key, start), extra,
                )  # fmt: skip
                parts.append([a[:got] for a in jax.device_get(reduced)])
        return [np.concatenate(columns) for columns in zip(*parts, strict=True)]

    def _bytes_per_input(self, width: int) -> int:
        one = jax.tree.map(lambda a: jax.ShapeDtypeStruct((1, *a.shape[1:]), a.dtype), self._x)
        shape, widest = footprint(self._model.network, self._model.likelihood.split(one)[0])
        # outputs of all samples, as they are and on the way to a result; and two layers
        return 12 * width * max(int(np.prod(shape[1:])), 1) + 2 * widest


def default_block_bytes() -> int:
    """Working memory of one block: what a cache likes on a CPU, a launch's worth on a GPU."""
    return 2**25 if jax.default_backend() == "cpu" else 2**30
