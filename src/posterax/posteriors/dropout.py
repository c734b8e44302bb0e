r"""The posterior of Monte Carlo dropout: a network whose inputs of layers come and go."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import PyTree

from .._util.noise import noise_key
from .._util.tree import path_name
from ..model import Parameters
from .base import Posterior, map_samples


def mask(key: jax.Array, rate: Any, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
    """Inverted dropout: 0 with probability ``rate``, else 1 / (1 − rate); its mean is 1.

    Example:
        >>> import jax
        >>> from posterax.posteriors.dropout import mask
        >>> sorted(set(mask(jax.random.key(0), 0.2, (100,), "float32").tolist()))
        [0.0, 1.25]
    """
    keep = 1 - jnp.asarray(rate, dtype)
    return jax.random.bernoulli(key, keep, shape).astype(dtype) / keep


class DropoutPosterior(Posterior):
    r"""q(w): every layer's weight is W · diag(z) / (1 − p), zᵢ ~ Bernoulli(1 − p).

    A draw is one mask for each weight, shared by all inputs: draws are functions. The mean of q is
    ``point``, the deviation of a dropped weight √(p / (1 − p)) |W|; weights without dropout have
    none.

    Where the network has dropout layers of its own (``rates`` is empty then), a draw is the key of
    their masks, shared by all inputs as well: predictions are those of a function, but it is no
    set of weights, and ``sample``, ``expectation`` and ``network`` see ``point``.

    ``point`` is the tree W; ``rates`` has p by the weight's name; ``units`` says which entries of
    the weight meet the same input.
    """

    centred: ClassVar[bool] = True

    point: Parameters
    rates: dict[str, Any]
    units: dict[str, Any]

    def parameters(self, identity: PyTree) -> Parameters:
        keys = jax.random.split(noise_key(identity), max(len(self.units), 1))
        numbers = {name: i for i, name in enumerate(sorted(self.units))}

        def one(name: str, w: jax.Array) -> jax.Array:
            if name not in numbers:
                return w
            units = self.units[name]
            z = mask(keys[numbers[name]], self.rates[name], (units.size,), w.dtype)
            return w * z[units]

        return self._by_name(one)

    def _by_name(self, function: Any) -> Parameters:
        """A function of the name and value of the network's weights; the others as they are."""
        network = jax.tree_util.tree_map_with_path(
            lambda path, w: function(path_name(path), w), self.point.network
        )
        return Parameters(network, self.point.likelihood)

    def evaluate(self, ids: PyTree, x: PyTree) -> tuple[jax.Array, Any]:
        if self.units:
            return super().evaluate(ids, x)

        def one(identity: PyTree) -> tuple[jax.Array, Any]:
            def row(x: PyTree) -> jax.Array:
                # a batch of one: layers that draw a mask for the batch draw the same for all rows
                batch = jax.tree.map(lambda a: a[None], x)
                outputs, _ = self.model.apply(
                    self.point, self.state, batch, identity, training=False, dropout=True
                )
                return outputs[0]

            return jax.vmap(row)(x), self.point.likelihood

        return map_samples(one, ids, jax.tree.leaves(x)[0].shape[0])

    def no_density(self) -> str:
        return (
            "DropoutPosterior has no density: its weights are 0 or W / (1 − p); sample from it, or "
            "fit px.BayesByBackprop, whose posterior has one"
        )

    def moments(self) -> tuple[Parameters, Parameters]:
        def deviation(name: str, w: jax.Array) -> jax.Array:
            if name not in self.rates:
                return jnp.zeros_like(w)
            rate = jnp.asarray(self.rates[name], w.dtype)
            return jnp.sqrt(rate / (1 - rate)) * jnp.abs(w)

        spread = self._by_name(deviation)
        own = jax.tree.map(jnp.zeros_like, self.point.likelihood)
        return self.point, Parameters(spread.network, own)
