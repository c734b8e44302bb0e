r"""What a posterior says about new inputs: mean, uncertainty and its parts, for every method.

Regression and counts, by the law of total variance over posterior draws w₁ … w_S:

    total = epistemic + aleatoric,  Var[y] = Var_w(E[y | w]) + E_w(Var[y | w])

Classification, by entropies in nats (Depeweg et al. 2018):

    H[E_w p] = I[y; w] + E_w H[p]

Everything streams: inputs go through in blocks so that samples × inputs never has to fit.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ._memory import explain_out_of_memory
from .likelihoods import Likelihood
from .model import Model

BLOCK_BYTES = 64 * 2**20


class Targets(NamedTuple):
    """The shape of one target as the user gave it, and as the likelihood holds it."""

    given: tuple[int, ...]
    inner: tuple[int, ...]


class Particles(NamedTuple):
    """Weighted draws of a posterior by identity: a key each, or an index each."""

    ids: Any
    weights: jax.Array


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
        block_bytes: int = BLOCK_BYTES,
    ):
        self._source = source.bare()
        self._model: Model = source.model
        self._x = x
        self._particles = particles
        self._key = key
        self._targets: Targets = source.targets
        self._block_bytes = block_bytes
        self._moments: Moments | None = None
        self.samples = len(particles.weights)

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
            reduce = _class_moments if self.kind == "classification" else _moments
            moments = Moments(*self._stream(reduce))
            if self.kind != "classification":
                moments = Moments(*(self._in_shape(part) for part in moments))
            self._moments = moments
        return self._moments

    # -- distribution

    def log_prob(self, y: Any) -> np.ndarray:
        """log p(y | x, D) = log E_w p(y | x, w) of each example: probabilities are averaged."""
        y = np.asarray(y)
        if len(y) != len(self):
            raise ValueError(f"y has {len(y)} entries for {len(self)} inputs")
        if y.size != len(y) * int(np.prod(self._targets.inner)):
            raise ValueError(
                f"y must have shape {(len(self), *self._targets.given)}, got {y.shape}"
            )
        return self._stream(_log_prob, y.reshape(len(y), *self._targets.inner))[0]

    def quantile(self, q: float | np.ndarray) -> np.ndarray:
        """Quantiles of y (regression, counts) or of the class probabilities over the posterior.

        For y they come from one draw of y per posterior sample; ask for many samples when the
        tails matter. The quantiles are the first axis where ``q`` is an array.
        """
        levels = np.atleast_1d(np.asarray(q, np.float64))
        if np.any(levels < 0) or np.any(levels > 1):
            raise ValueError(f"q must lie between 0 and 1, got {q!r}")
        reduce = _class_quantiles if self.kind == "classification" else _quantiles
        found = self._stream(reduce, None, jnp.asarray(levels))[0]
        found = np.moveaxis(found, 1, 0)
        if self.kind != "classification":
            found = np.stack([self._in_shape(part) for part in found])
        return found if np.ndim(q) else found[0]

    def interval(self, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The central interval of y (of the probabilities, for classes) with this mass."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}")
        low, high = self.quantile(np.array([(1 - level) / 2, (1 + level) / 2]))
        return low, high

    def sample(self, n: int | None = None) -> np.ndarray:
        """Draws of y, first axis ``n`` (default: one per posterior sample)."""
        drawn = np.moveaxis(self._stream(_draw)[0], 1, 0)
        drawn = np.stack([self._in_shape(part) for part in drawn])
        if n is None:
            return drawn
        if n > len(drawn):
            raise ValueError(
                f"n={n} draws asked of a predictive with {len(drawn)} samples: predict with "
                f"samples={n}"
            )
        return drawn[:n]

    def outputs(self) -> np.ndarray:
        """The network's outputs for every posterior sample, (samples, inputs, …)."""
        return np.moveaxis(self._stream(_outputs)[0], 1, 0)

    # -- machinery

    def _only(self, kind: str, name: str) -> None:
        if self.kind != kind:
            raise ValueError(f"{name} is for {kind}; this predictive is of {self.kind}")

    def _in_shape(self, part: np.ndarray) -> np.ndarray:
        return part.reshape(len(part), *self._targets.given)

    def _stream(self, reduce: Callable[..., Any], y: Any = None, extra: Any = None) -> list[Any]:
        """Run ``reduce`` over blocks of inputs; the last block is padded to a power of two."""
        n = len(self)
        shape = self._model.network.output_shape(
            jax.tree.map(lambda a: jax.ShapeDtypeStruct((1, *a.shape[1:]), a.dtype), self._inputs())
        )
        per_input = 4 * self.samples * max(int(np.prod(shape[1:])), 1) * 3
        size = max(1, min(n, self._block_bytes // max(per_input, 1)))
        size = 1 << (size - 1).bit_length() if size < n else 1 << (n - 1).bit_length()
        parts = []
        with explain_out_of_memory(
            f"predicting {n} inputs in blocks of {size} with {self.samples} samples",
            size * per_input,
        ):
            for start in range(0, n, size):
                rows = slice(start, min(start + size, n))
                got = rows.stop - rows.start
                block = jax.tree.map(lambda a, r=rows: _pad(a[r], size), self._x)
                y_block = None if y is None else _pad(y[rows], size)
                reduced = _reduce_block(
                    reduce, self._source, block, y_block,
                    self._particles, jax.random.fold_in(self._key, start), extra,
                )  # fmt: skip
                parts.append([np.asarray(a[:got]) for a in reduced])
        return [np.concatenate(columns) for columns in zip(*parts, strict=True)]

    def _inputs(self) -> Any:
        return self._model.likelihood.split(self._x)[0]


def _pad(a: Any, size: int) -> Any:
    missing = size - len(a)
    return a if missing == 0 else np.concatenate([a, np.repeat(np.asarray(a[:1]), missing, axis=0)])


class Block(NamedTuple):
    """One block of inputs with the network's outputs for every posterior sample."""

    likelihood: Likelihood
    outputs: jax.Array  # (samples, rows, …)
    own: Any  # the likelihood's parameters, (samples, …)
    side: Any
    weights: jax.Array
    y: Any
    key: jax.Array

    def each(self, function: Callable[..., Any], *more: Any) -> Any:
        """Apply ``function(outputs, own, side, …)`` to every sample."""
        return jax.vmap(lambda f, own, *args: function(f, own, self.side, *args))(
            self.outputs, self.own, *more
        )

    def average(self, values: jax.Array) -> jax.Array:
        """The weighted mean over samples."""
        return jnp.tensordot(self.weights.astype(values.dtype), values, axes=1)


@eqx.filter_jit
def _reduce_block(
    reduce: Callable[[Block, Any], Any],
    source: Any,
    x: Any,
    y: Any,
    particles: Particles,
    key: jax.Array,
    extra: Any,
) -> Any:
    model = source.model
    rows = jax.tree.leaves(x)[0].shape[0]

    def one(identity: Any) -> tuple[jax.Array, Any]:
        params = source.parameters(identity)
        outputs, _ = model.apply(params, source.network_state(identity), x, None, training=False)
        return outputs, params.likelihood

    # several samples at once while the block is small, one large product after another otherwise
    group = max(1, min(len(particles.weights), 2048 // rows))
    outputs, own = jax.lax.map(one, particles.ids, batch_size=group)
    side = model.likelihood.split(x)[1]
    block = Block(model.likelihood, outputs, own, side, particles.weights, y, key)
    return reduce(block, extra)


def _moments(block: Block, extra: Any) -> Any:
    def one(f: jax.Array, own: Any, side: Any) -> tuple[jax.Array, jax.Array]:
        distribution = block.likelihood.distribution(f, own, side)
        return distribution.mean, distribution.variance

    means, variances = block.each(one)
    mean = block.average(means)
    epistemic = block.average(jnp.square(means - mean))
    aleatoric = block.average(variances)
    total = epistemic + aleatoric
    return mean, total, epistemic, aleatoric, total


def _class_moments(block: Block, extra: Any) -> Any:
    p = block.each(block.likelihood.probabilities)
    mean = block.average(p)
    variance = block.average(jnp.square(p - mean))
    aleatoric = block.average(_entropy(p))
    # rounding must not make information negative
    total = jnp.maximum(_entropy(mean), aleatoric)
    return mean, variance, total - aleatoric, aleatoric, total


def _entropy(p: jax.Array) -> jax.Array:
    return -jnp.sum(jax.scipy.special.xlogy(p, p), axis=-1)


def _log_prob(block: Block, extra: Any) -> Any:
    each = block.each(
        lambda f, own, side: block.likelihood.log_prob(f, jnp.asarray(block.y), own, side)
    )
    weights = block.weights.astype(each.dtype)[:, None]
    return (jax.nn.logsumexp(each, axis=0, b=weights),)


def _outputs(block: Block, extra: Any) -> Any:
    return (jnp.moveaxis(block.outputs, 0, 1),)


def _draw_y(block: Block, key: jax.Array) -> jax.Array:
    keys = jax.random.split(key, len(block.weights))
    return block.each(
        lambda f, own, side, k: block.likelihood.distribution(f, own, side).sample(k), keys
    )


def _draw(block: Block, extra: Any) -> Any:
    pick, noise = jax.random.split(block.key)
    draws = _draw_y(block, noise)
    s = len(block.weights)
    chosen = jax.random.choice(pick, s, (s,), p=block.weights)
    equal = jnp.all(block.weights == block.weights[0])
    index = jnp.where(equal, jnp.arange(s), chosen)
    return (jnp.moveaxis(draws[index], 0, 1),)


def _quantiles(block: Block, levels: jax.Array) -> Any:
    return (_weighted_quantile(_draw_y(block, block.key), block.weights, levels),)


def _class_quantiles(block: Block, levels: jax.Array) -> Any:
    p = block.each(block.likelihood.probabilities)
    return (_weighted_quantile(p, block.weights, levels),)


def _weighted_quantile(values: jax.Array, w: jax.Array, levels: jax.Array) -> jax.Array:
    """Quantiles over the first axis with weights, as (rows, levels, …)."""
    order = jnp.argsort(values, axis=0)
    ranked = jnp.take_along_axis(values, order, axis=0)
    # each draw sits in the middle of its own weight; ends are clamped
    mass = w.astype(jnp.result_type(float))[order]
    place = jnp.cumsum(mass, axis=0) - 0.5 * mass
    flat = jax.vmap(lambda p, v: jnp.interp(levels, p, v), in_axes=1)(
        place.reshape(len(w), -1), ranked.reshape(len(w), -1).astype(place.dtype)
    )
    return jnp.moveaxis(flat.reshape(*values.shape[1:], -1), -1, 1)
