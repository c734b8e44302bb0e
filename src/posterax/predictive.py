r"""What a posterior says about new inputs: mean, uncertainty and its parts, for every method.

Regression and counts, by the law of total variance over posterior draws w₁ … w_S:

    total = epistemic + aleatoric,  Var[y] = Var_w(E[y | w]) + E_w(Var[y | w])

Classification, by entropies in nats (Depeweg et al. 2018):

    H[E_w p] = I[y; w] + E_w H[p]

Everything streams: inputs go through in blocks so that samples × inputs never has to fit.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from . import _reductions as rd
from ._checks import whole
from ._memory import explain_out_of_memory
from ._reductions import Particles
from .data import as_array, bucket, check_finite, pad_rows
from .model import Model
from .networks.footprint import footprint


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


class Moments(NamedTuple):
    """Summary of the predictive, one row per input."""

    mean: np.ndarray
    variance: np.ndarray
    epistemic: np.ndarray
    aleatoric: np.ndarray
    total: np.ndarray


class Predictive:
    """The predictive distribution p(y | x, D) at given inputs; made by ``posterior.predict``.

    Nothing is computed before it is asked for; moments are computed once and kept.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 32)[:, None].astype("float32")
        >>> model = px.Model(
        ...     px.networks.MLP(1, 1, (8,), key=0),
        ...     px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1),
        ... )
        >>> posterior = px.fit(model, (x, x[:, 0]), px.BayesByBackprop(), epochs=5, key=0)
        >>> predictive = posterior.predict(x, samples=16, key=1)
        >>> predictive.mean.shape
        (32,)
        >>> bool(np.allclose(predictive.epistemic + predictive.aleatoric, predictive.total))
        True
    """

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
        self._moments: Moments | None = None
        self.samples = len(particles.weights)
        self._draws = draws or self.samples

    def __len__(self) -> int:
        return len(jax.tree.leaves(self._x)[0])

    def __repr__(self) -> str:
        return (
            f"Predictive({self.kind}, {len(self)} inputs, {self.samples} samples: "
            "mean, epistemic, aleatoric, total, interval(level), log_prob(y), …)"
        )

    @property
    def kind(self) -> str:
        """``"regression"``, ``"counts"`` or ``"classification"``."""
        return self._model.likelihood.kind

    # -- moments

    @property
    def mean(self) -> np.ndarray:
        """E[y], or the class probabilities."""
        return self._summary.mean

    @property
    def variance(self) -> np.ndarray:
        """Var[y]; for classes the variance of their probabilities over the posterior (1/S)."""
        return self._summary.variance

    @property
    def epistemic(self) -> np.ndarray:
        """What more data would remove: Var_w(E[y | w]), or the mutual information in nats."""
        return self._summary.epistemic

    @property
    def aleatoric(self) -> np.ndarray:
        """What no data removes: E_w(Var[y | w]), or the expected entropy in nats."""
        return self._summary.aleatoric

    @property
    def total(self) -> np.ndarray:
        """Epistemic + aleatoric: Var[y], or the entropy of the mean probabilities."""
        return self._summary.total

    @property
    def std(self) -> np.ndarray:
        """The root of ``variance``, in the units of y."""
        return np.sqrt(self.variance)

    @property
    def mode(self) -> np.ndarray:
        """The most probable class."""
        self._only("classification", "mode")
        return self.mean.argmax(-1)

    @property
    def _summary(self) -> Moments:
        if self._moments is None:
            reduce = rd.class_moments if self.kind == "classification" else rd.moments
            moments = Moments(*self._stream(reduce))
            if self.kind != "classification":
                moments = Moments(*(self._in_shape(part) for part in moments))
            if self._units is not None:
                square = np.square(self._units.scale)
                moments = Moments(self._units.of(moments.mean), *(square * v for v in moments[1:]))
            self._moments = moments
        return self._moments

    # -- distribution

    def log_prob(self, y: Any) -> np.ndarray:
        """log p(y | x, D) = log E_w p(y | x, w) of each example: probabilities are averaged."""
        y = np.asarray(as_array(y, "y"))
        given, inner = self._targets
        accepted = {given, inner} | ({(), (1,)} if inner in ((), (1,)) else set())
        if y.ndim == 0 or len(y) != len(self) or y.shape[1:] not in accepted:
            raise ValueError(f"y must have shape {(len(self), *given)}, got {y.shape}")
        check_finite("y", y)
        if self._units is not None:
            shift, scale = self._units
            inside = copy.copy(self)
            inside._units = None
            density = np.sum(np.log(np.broadcast_to(scale, given)))  # dy′ = dy / scale
            return inside.log_prob((y.reshape(-1, *given) - shift) / scale) - density
        shape = self._model.output_shape(self._x)
        self._model.likelihood.check_values(y, shape)
        return self._stream(rd.log_prob, y.reshape(len(y), *self._targets.inner))[0]

    def quantile(self, q: float | np.ndarray) -> np.ndarray:
        """Quantiles of y (regression, counts) or of the class probabilities over the posterior.

        Those of a continuous y solve E_w[F(y | w)] = q; where the likelihood has no distribution
        function they come from draws of y. The quantiles are the first axis where ``q`` is an
        array.
        """
        levels = np.atleast_1d(np.asarray(q, np.float64))
        if not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError(f"q must lie between 0 and 1, got {q!r}")
        reduce = rd.class_quantiles if self.kind == "classification" else rd.quantiles
        found = self._stream(reduce, None, jnp.asarray(levels), max(self.samples, rd.DRAWS))[0]
        found = np.moveaxis(found, 1, 0)
        if self.kind != "classification":
            found = np.stack([self._in_shape(part) for part in found])
        if self._units is not None:
            found = self._units.of(found)
        return found if np.ndim(q) else found[0]

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The central interval of y (of the probabilities, for classes) with this mass."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}")
        low, high = self.quantile(np.array([(1 - level) / 2, (1 + level) / 2]))
        return low, high

    def sample(self, n: int | None = None) -> np.ndarray:
        """``n`` draws of y on the first axis (default: as many as ``predict`` was asked for)."""
        n = self._draws if n is None else whole("n", n)
        # all blocks take the same draws, so that each is one function over all inputs
        pick = jax.random.fold_in(self._key, len(self))
        drawn = np.moveaxis(self._stream(rd.draws, None, (pick, n), max(self.samples, n))[0], 1, 0)
        drawn = np.stack([self._in_shape(part) for part in drawn])
        return drawn if self._units is None else self._units.of(drawn)

    def outputs(self) -> np.ndarray:
        """The network's outputs for every posterior sample, (samples, inputs, …)."""
        return np.moveaxis(self._stream(rd.outputs)[0], 1, 0)

    def in_units(self, shift: Any, scale: Any) -> "Predictive":
        """The predictive of shift + scale · y: undoes a standardisation of the targets.

        Everything but ``outputs`` is in the new units then, in float64. ``shift`` and ``scale``
        (above 0) are numbers, or arrays with the shape of one target.
        """
        self._only("regression", "in_units")
        shape = self._targets.given
        shift, scale = np.asarray(shift, np.float64), np.asarray(scale, np.float64)
        fits = all(np.broadcast_shapes(a.shape, shape) == shape for a in (shift, scale))
        if not (fits and np.all(scale > 0) and np.all(np.isfinite(scale + shift))):
            raise ValueError(
                f"shift and scale must be finite, scale above 0, one each or of shape {shape}; "
                f"got shift of shape {shift.shape} and scale {scale!r}"
            )
        view = copy.copy(self)
        before = self._units or Units(np.zeros(()), np.ones(()))
        view._units = Units(shift + scale * before.shift, scale * before.scale)
        view._moments = None
        return view

    def widened(self, factor: Any) -> "Predictive":
        """The same mean and shape with every deviation from the mean ``factor`` times as wide.

        The predictive of mean + factor · (y − mean): both parts of the variance grow by factor².
        ``factor`` (above 0) is a number, or an array with the shape of one target.
        """
        mean = self.mean
        view = self.in_units(0.0, factor)
        assert view._units is not None
        shift, scale = view._units
        view._units = Units(shift + (1 - np.asarray(factor, np.float64)) * mean, scale)
        return view

    # -- machinery

    def _only(self, kind: str, name: str) -> None:
        if self.kind != kind:
            raise ValueError(f"{name} is for {kind}; this predictive is of {self.kind}")

    def _in_shape(self, part: np.ndarray) -> np.ndarray:
        return part.reshape(len(part), *self._targets.given)

    def _stream(
        self, reduce: Callable[..., Any], y: Any = None, extra: Any = None, width: int = 0
    ) -> list[Any]:
        """Run ``reduce`` over blocks of inputs, padded to shared sizes; ``width`` draws wide."""
        n = len(self)
        one = jax.tree.map(lambda a: jax.ShapeDtypeStruct((1, *a.shape[1:]), a.dtype), self._x)
        shape, widest = footprint(self._model.network, self._model.likelihood.split(one)[0])
        # outputs of all samples, as they are and on the way to a result; and two layers
        per_input = 12 * max(self.samples, width) * max(int(np.prod(shape[1:])), 1) + 2 * widest
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
                reduced = rd.reduce_block(
                    reduce, self._source, block, y_block,
                    self._particles, jax.random.fold_in(self._key, start), extra,
                )  # fmt: skip
                parts.append([a[:got] for a in jax.device_get(reduced)])
        return [np.concatenate(columns) for columns in zip(*parts, strict=True)]


def default_block_bytes() -> int:
    """Working memory of one block: what a cache likes on a CPU, a launch's worth on a GPU."""
    return 2**25 if jax.default_backend() == "cpu" else 2**30
