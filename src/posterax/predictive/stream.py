"""The machinery behind a predictive: blocks of inputs, groups of samples, units of the targets."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike
from scipy import special

from .._util.admit import admit, check_finite
from .._util.memory import explain_out_of_memory, refuse_beyond_memory
from .._util.tree import abstract_rows, dtype_of
from ..data import bucket, pad_rows
from ..model import Model
from . import quantiles as qt
from . import sampled as rd
from .sampled import Particles

LEAST_ROWS = 256  # fewer inputs at once, and making the weights costs more than using them


class Targets(NamedTuple):
    """The shape of one target as the user gave it, and as the likelihood holds it."""

    given: tuple[int, ...]
    inner: tuple[int, ...]


class Units(NamedTuple):
    """y as people have it is shift + scale · y as the model has it, and ``low`` or more.

    All are shaped like one target; once ``widened``, the shift is another for each input.
    """

    shift: np.ndarray
    scale: np.ndarray
    low: Any = -np.inf

    def of(self, y: np.ndarray) -> np.ndarray:
        return np.maximum(self.shift + self.scale * y, self.low)


class Moments(NamedTuple):
    """Summary of the predictive, one row per input."""

    mean: np.ndarray
    variance: np.ndarray
    epistemic: np.ndarray
    aleatoric: np.ndarray
    total: np.ndarray


class Joined:
    r"""The moments of all that was added, over parts of the draws, in float64.

    By the formula of Chan, Golub and LeVeque (Updating Formulae and a Pairwise Algorithm for
    Computing Sample Variances, COMPSTAT 1982), with n and n′ the draws, or the weight, behind each
    part:

        m ← m + (m′ − m) n′/(n + n′),   n v ← n v + n′ v′ + (m′ − m)² n n′/(n + n′)
    """

    def __init__(self, classes: bool):
        self._classes = classes
        self._amount = 0.0
        self._mean: Any = 0.0
        self._squares: Any = 0.0  # the amount times the variance of the means over draws
        self._aleatoric: Any = 0.0

    def add(self, part: Moments, amount: float) -> None:
        """Join the moments over draws that weigh ``amount`` together."""
        spread = part.variance if self._classes else part.epistemic
        before = self._amount
        self._amount = before + amount
        share = amount / self._amount
        change = np.asarray(part.mean, np.float64) - self._mean
        self._mean = self._mean + share * change
        self._squares = self._squares + amount * spread + np.square(change) * before * share
        self._aleatoric = (1 - share) * self._aleatoric + share * part.aleatoric

    def moments(self) -> Moments:
        """Over all draws so far."""
        mean, aleatoric, spread = self._mean, self._aleatoric, self._squares / self._amount
        if self._classes:
            # rounding must not make information negative
            total = np.maximum(special.entr(mean).sum(-1), aleatoric)
            return Moments(mean, spread, total - aleatoric, aleatoric, total)
        total = spread + aleatoric
        return Moments(mean, total, spread, aleatoric, total)


class Streamed:
    """Summaries of p(y | x, D), computed block by block."""

    def __init__(
        self,
        source: Any,
        x: PyTree,
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
        rows, units = np.asarray(rows, np.int64), self._units
        if units is not None and np.ndim(units.shift) > len(self._targets.given):
            units = units._replace(shift=units.shift[rows])
        return self._view(_x=jax.tree.map(lambda a: a[rows], self._x), _units=units)

    def _view(self, **changed: Any) -> Self:
        """The same predictive with some of its fields changed, and moments not yet computed."""
        view = copy.copy(self)
        vars(view).update(changed, _moments=None)
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
                given = self._targets.given
                moments = Moments(*(part.reshape(len(part), *given) for part in moments))
            if self._units is not None:
                square = np.square(self._units.scale)
                moments = Moments(self._units.of(moments.mean), *(square * v for v in moments[1:]))
            self._moments = moments
        return self._moments

    def _quantiles(self, reduce: Callable[..., Any], at: Any) -> Any:
        """Quantiles, or ends of intervals, on the first axis."""
        values = self._stream(reduce, None, jnp.asarray(at), max(self.samples, qt.DRAWS))[0]
        return self._values_first(values, of_y=self.kind != "classification")

    def _values_first(self, values: np.ndarray, *, of_y: bool) -> np.ndarray:
        """(rows, values, …) as (values, rows, …); values of y in the targets' shape and units."""
        values = np.moveaxis(values, 1, 0)
        if of_y:
            values = values.reshape(*values.shape[:2], *self._targets.given)
        return values if self._units is None else self._units.of(values)

    def _only(self, kind: str, name: str) -> None:
        if self.kind != kind:
            raise ValueError(f"{name} is for {kind}; this predictive is of {self.kind}")

    def _inner_targets(self, y: ArrayLike) -> np.ndarray:
        """Targets as the likelihood has them, once their shape and their values fit."""
        targets = np.asarray(admit(y, "y"))
        (given, inner), n = self._targets, len(self)
        accepted = {given, inner} | ({(), (1,)} if inner in ((), (1,)) else set())
        if targets.shape not in {(n, *shape) for shape in accepted}:
            raise ValueError(f"y must have shape {(n, *given)}, got {targets.shape}")
        check_finite("y", targets)
        if self._units is not None:
            targets = (targets.reshape(-1, *given) - self._units.shift) / self._units.scale
        self._model.likelihood.check_values(targets, self._source.output_shape(self._x))
        if self.kind != "classification" and targets.dtype.kind in "iub":
            targets = targets.astype(np.int64)  # y + 1 of uint8 would wrap
        dtype = dtype_of(self._model.parameters)
        return admit(targets, "y", dtype).reshape(n, *inner)

    def _log_scale(self) -> float:
        """What a density loses in the user's units: dy′ = dy / scale."""
        if self._units is None:
            return 0.0
        return float(np.sum(np.log(np.broadcast_to(self._units.scale, self._targets.given))))

    def _below(self, y: ArrayLike) -> np.ndarray:
        """Which examples have a target below the least that there can be."""
        low = -np.inf if self._units is None else self._units.low
        return np.any(np.asarray(y).reshape(len(self), -1) < np.ravel(low), axis=1)

    def _groups(self) -> "list[Streamed]":
        """Views of some of the samples each, where a block of all of them has few inputs."""
        if not self._source.divisible:
            return [self]
        most = self._block_bytes // self._bytes_per_input(self.samples)
        if most >= min(LEAST_ROWS, len(self)):
            return [self]
        # pairs of opposite samples stay together
        size = max(2, self.samples * max(most, 1) // LEAST_ROWS // 2 * 2)
        starts = range(0, self.samples, size)
        parts = [jax.tree.map(lambda a, i=i: a[i : i + size], self._particles) for i in starts]
        return [self._view(_particles=part, samples=len(part.weights)) for part in parts]

    def _merged_moments(self) -> Moments:
        """Moments over all samples; those of groups are joined as in ``RunningPredictive``."""
        groups = self._groups()
        if len(groups) == 1:
            return Moments(*self._stream(rd.moments))
        joined = Joined(self.kind == "classification")
        for group in groups:
            share = float(np.sum(np.asarray(group._particles.weights, np.float64)))
            if share > 0:
                weights = group._particles.weights / share
                group._particles = group._particles._replace(weights=weights)
                joined.add(Moments(*group._stream(rd.moments)), share)
        return joined.moments()

    def _stream(
        self, reduce: Callable[..., Any], y: PyTree = None, extra: PyTree = None, width: int = 0
    ) -> list[Any]:
        """Run ``reduce`` over blocks of inputs, padded to shared sizes; ``width`` draws wide."""
        n = len(self)
        per_input = self._bytes_per_input(max(self.samples, width))
        most = max(1, self._block_bytes // per_input)
        size = max(bucket(-(-n // -(-n // most))), self._least_rows)
        parts = []
        what = f"predicting {n} inputs in blocks of {size} with {self.samples} samples"
        if most == 1:  # not even one input is within the bound
            refuse_beyond_memory(what, size * per_input)
        with explain_out_of_memory(what, size * per_input):
            for start in range(0, n, size):
                rows = slice(start, min(start + size, n))
                got = rows.stop - rows.start
                block = jax.tree.map(lambda a, r=rows: pad_rows(a[r], size), self._x)
                y_block = None if y is None else pad_rows(y[rows], size)
                reduced = rd.reduce_sampled(
                    reduce, self._source, block, y_block, self._particles,
                    self._temperature, jax.random.fold_in(self._key, start), extra,
                )  # fmt: skip
                parts.append([a[:got] for a in jax.tree.leaves(jax.device_get(reduced))])
        return [np.concatenate(columns) for columns in zip(*parts, strict=True)]

    def _every(self, reduce: Callable[..., Any], y: PyTree = None, extra: Any = None) -> np.ndarray:
        """What ``reduce`` gives for every input and each of ``extra[-1]`` draws, or samples."""
        name, width = ("samples", self.samples) if extra is None else ("n", extra[-1])
        needed = 4 * width * len(self) * self._footprint()[0]
        refuse_beyond_memory(f"{name}={width:,}: so many values of {len(self):,} inputs", needed)
        return self._stream(reduce, y, extra, width)[0]

    def _bytes_per_input(self, width: int) -> int:
        outputs, widest = self._footprint()
        # outputs of all samples, as they are and on the way to a result; and two layers
        return 12 * width * outputs + 2 * widest

    def _footprint(self) -> tuple[int, int]:
        """How many outputs an input has, and the bytes of its widest layer."""
        one = abstract_rows(self._x, 1)
        shape, widest, _ = self._source.footprint(one)
        return max(int(np.prod(shape[1:])), 1), widest


def default_block_bytes() -> int:
    """Working memory of one block: what a cache likes on a CPU, a launch's worth on a GPU."""
    return 2**25 if jax.default_backend() == "cpu" else 2**30
