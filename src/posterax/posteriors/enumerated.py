r"""The exact posterior of weights on a grid: a probability for each of finitely many states.

A state is known by a number, whose digits say which value each weight has (mixed radix: a weight
with k values is a digit of base k). The first weight is the fastest digit.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._util.jax_names import Tracer
from ..data import bucket
from ..model import Model, Parameters
from ..predictive import Particles
from ..priors import Grid
from ..program.compiled import compiled
from .base import Estimate, Posterior, Summary
from .factors import Gridded

NEGLIGIBLE = 1e-12  # of the probability may be left out of sums over states
MOST = 4096  # states that a prediction averages over; beyond, draws
BLOCK = 1024  # states at once in an expectation


def digits(model: Model) -> Iterator[tuple[Grid, jax.Array, np.ndarray]]:
    """The grid of every array of the parameters, the array, and its digits' strides."""
    stride = 1
    for prior, like in zip(model.prior_of_each(), jax.tree.leaves(model.parameters), strict=True):
        grid = cast(Grid, prior)
        strides = [stride * len(grid) ** i for i in range(like.size)]
        yield grid, like, np.asarray(strides, np.int32).reshape(like.shape)
        stride *= len(grid) ** like.size


def decode(model: Model, number: jax.Array) -> Parameters:
    """The parameters of the state with this number."""
    return model.tree_of(
        grid.value(number // strides % len(grid), like.dtype)
        for grid, like, strides in digits(model)
    )


def encode(model: Model, parameters: Parameters) -> tuple[jax.Array, jax.Array]:
    """The number of the state nearest to these parameters, and whether they are on the grid."""
    number, inside = jnp.zeros((), jnp.int32), jnp.ones((), bool)
    for (grid, _, strides), w in zip(digits(model), jax.tree.leaves(parameters), strict=True):
        number += jnp.sum(grid.index(w) * strides, dtype=jnp.int32)
        inside &= jnp.all(grid.contains(w))
    return number, inside


class Enumerated(Gridded):
    r"""p(s | D) of every state s, exact; made by ``px.Enumeration``.

    ``log_probs`` has one entry for each state. Predictions average over all states with their
    probabilities, without those whose probabilities sum to less than 1e-12; where that leaves
    more than 4096 states, over 4096 draws that follow the distribution evenly (systematic
    sampling). ``moments``, ``marginals`` and ``expectation`` (unless it is asked for ``samples``)
    are exact however many there are.
    """

    log_probs: Any

    def particles(self, key: jax.Array, samples: int | None) -> Particles:
        if samples is not None:
            return Particles.equal(_draw(self.log_probs, key, samples))
        numbers, probs = self.likely()
        if len(numbers) <= MOST:
            return Particles(jnp.asarray(numbers), jnp.asarray(probs))
        ladder = np.cumsum(self._probs())
        u = (np.arange(MOST) + float(jax.random.uniform(key))) / MOST
        evenly = np.searchsorted(ladder, u * ladder[-1], side="right").astype(np.int32)
        return Particles.equal(jnp.asarray(evenly))

    def _sizes(self) -> dict[str, int]:
        return {"states": len(self.log_probs)}

    def parameters(self, identity: PyTree) -> Parameters:
        return decode(self.model, identity)

    def _probs(self) -> np.ndarray:
        return np.exp(np.asarray(self.log_probs, np.float64))

    def likely(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers and probabilities of all states that matter, the most probable first."""
        probs = self._probs()
        order = np.argsort(-probs, kind="stable")
        left = 1 - np.cumsum(probs[order] / probs.sum())
        count = min(int(np.searchsorted(-left, -NEGLIGIBLE)) + 1, int(np.sum(probs > 0)))
        largest = probs[order[:count]]
        return order[:count].astype(np.int32), largest / largest.sum()

    def log_prob(self, parameters: Parameters) -> jax.Array:
        """log p(s | D) of the state with these parameters; −∞ off the grid."""
        number, inside = encode(self.model, parameters)
        return jnp.where(inside, jnp.asarray(self.log_probs)[number], -jnp.inf)

    def _expectation(self, function: Summary, samples: int | None, key: jax.Array) -> Estimate:
        if samples is not None:
            return super()._expectation(function, samples, key)
        numbers, probs = self.likely()
        # sizes are shared by similar posteriors; what is added weighs nothing
        more = (0, bucket(len(numbers)) - len(numbers))
        numbers, probs = np.pad(numbers, more, mode="edge"), np.pad(probs, more)
        mean = np.asarray(_sum(function, self.bare(), jnp.asarray(numbers), jnp.asarray(probs)))
        return mean, np.zeros_like(mean)

    def marginals(self) -> Parameters:
        """For each weight the probabilities of its values, on a last axis, in the grid's order.

        Example:
            >>> import numpy as np
            >>> import posterax as px
            >>> x = np.array([[1.0], [2.0]], "float32")
            >>> line = ({"slope": np.zeros((1, 1), "float32")}, lambda p, x: x @ p["slope"])
            >>> model = px.Model(line, px.priors.Grid([-1, 1]), px.likelihoods.Gaussian(1.0))
            >>> posterior = px.fit(model, (x, x[:, 0]), px.Enumeration())
            >>> posterior.marginals().network["slope"].shape
            (1, 1, 2)
        """
        # compiled programs ask for moments too, of arrays that have no numbers yet
        traced = isinstance(self.log_probs, Tracer)
        probs: Any = jnp.exp(self.log_probs) if traced else self._probs()
        probs = probs / probs.sum()

        def one(grid: Grid, like: jax.Array, strides: np.ndarray) -> jax.Array:
            split = (probs.reshape(-1, len(grid), int(stride)) for stride in strides.ravel())
            each = jnp.stack([states.sum(2).sum(0) for states in split])
            return jnp.asarray(each, like.dtype).reshape(*like.shape, len(grid))

        return self.model.tree_of(one(*each) for each in digits(self.model))

    def moments(self) -> tuple[Parameters, Parameters]:
        def one(grid: Grid, probs: jax.Array) -> tuple[jax.Array, jax.Array]:
            values = jnp.asarray(grid.values, probs.dtype)
            mean = probs @ values
            return mean, jnp.sqrt(jnp.sum(probs * jnp.square(values - mean[..., None]), -1))

        pairs = zip(self.model.prior_of_each(), jax.tree.leaves(self.marginals()), strict=True)
        mean, std = zip(*(one(cast(Grid, grid), probs) for grid, probs in pairs), strict=True)
        return self.model.tree_of(mean), self.model.tree_of(std)


@partial(jax.jit, static_argnums=2)
def _draw(log_probs: jax.Array, key: jax.Array, samples: int) -> jax.Array:
    """Numbers of states by their probabilities; a row of them first, then one in the row.

    One sum over all states would end in steps that float32 cannot tell from nothing.
    """
    states = len(log_probs)
    width = 2 ** (states.bit_length() // 2)
    padded = jnp.pad(log_probs, (0, -states % width), constant_values=-jnp.inf)
    table = jnp.exp(padded).reshape(-1, width)
    rows = jnp.sum(table, axis=1)

    def pick(probs: jax.Array, u: jax.Array) -> jax.Array:
        ladder = jnp.cumsum(probs)
        below = jnp.nextafter(ladder[-1], jnp.zeros((), ladder.dtype))
        return jnp.searchsorted(ladder, jnp.minimum(u * ladder[-1], below), side="right")

    def one(u: jax.Array) -> jax.Array:
        row = pick(rows, u[0])
        return (row * width + pick(table[row], u[1])).astype(jnp.int32)

    u = jax.random.uniform(key, (samples, 2), table.dtype)
    return jax.lax.map(one, u, batch_size=min(BLOCK, samples))


@compiled
def _sum(function: Any, posterior: Posterior, numbers: jax.Array, probs: jax.Array) -> Any:
    """Σ p F(w) over states, a block of them at a time."""
    block = min(BLOCK, len(numbers))
    blocks = -(-len(numbers) // block)
    more = (0, blocks * block - len(numbers))
    numbers, probs = jnp.pad(numbers, more, mode="edge"), jnp.pad(probs, more)

    def add(total: jax.Array, part: PyTree) -> tuple[jax.Array, None]:
        ids, weights = part
        values = jax.vmap(lambda i: jnp.asarray(function(posterior.parameters(i))))(ids)
        return total + jnp.tensordot(weights, values.astype(total.dtype), axes=1), None

    like = jax.eval_shape(lambda i: jnp.asarray(function(posterior.parameters(i))), numbers[0])
    total = jnp.zeros(like.shape, jnp.promote_types(like.dtype, probs.dtype))
    parts = (numbers.reshape(blocks, block), probs.reshape(blocks, block))
    return jax.lax.scan(add, total, parts)[0]
