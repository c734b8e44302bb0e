"""How noisy a method's gradient is: the measure by which estimators are compared."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree

from ._util.checks import whole_number
from ._util.keys import KeyLike, as_key
from ._util.memory import refuse_draws
from .data import unpack
from .fitting.prepare import Asked, prepare
from .fitting.start import make_start
from .infer import Method
from .infer.base import Phase, Start
from .model import Model
from .posteriors import Posterior
from .program.compiled import compiled

# keeps the gradient as its state, and moves nothing
RECORDER = optax.GradientTransformation(
    lambda params: jax.tree.map(jnp.zeros_like, params),
    lambda grads, state, params=None: (jax.tree.map(jnp.zeros_like, grads), grads),
)


class GradientMoments(NamedTuple):
    """Mean and variance of one step's gradient, trees like the optimiser's {mu, rho, …}."""

    mean: PyTree
    variance: PyTree

    @property
    def average(self) -> float:
        """The variance averaged over all variational parameters."""
        parts = [np.ravel(part) for part in jax.tree.leaves(self.variance)]
        return float(np.mean(np.concatenate(parts)))


def gradient_moments(
    model: Model,
    data: tuple[PyTree, ...],
    method: Method,
    posterior: Posterior,
    *,
    repeats: int = 1000,
    key: KeyLike = 0,
) -> GradientMoments:
    r"""Mean and variance of the gradient that ``method`` would follow from ``posterior`` on.

    The first step is taken ``repeats`` times, on all data, with a new key each; the variational
    parameters stay where they are. As many steps before that are not counted, so that a control
    variate knows its coefficient.

    Args:
        model: the model.
        data: (x, y) or (x, y, weight).
        method: ``px.BlackBoxVI`` or ``px.BayesByBackprop``, with its number of samples.
        posterior: q, where the gradient is measured; of the family of the method.
        repeats: how often.
        key: an int or a JAX key.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> from posterax.gradients import gradient_moments
        >>> x = np.linspace(-1, 1, 16)[:, None].astype("float32")
        >>> network = {"w": np.ones((1, 1), "float32")}, lambda p, x: x @ p["w"]
        >>> model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.5))
        >>> start = px.BayesByBackprop(initial_rho=-1.0)
        >>> q = px.fit(model, (x, x), start, steps=1)
        >>> reparameterized, score = (
        ...     gradient_moments(model, (x, x), method, q).average
        ...     for method in (px.BayesByBackprop(samples=4), px.BlackBoxVI(samples=4))
        ... )
        >>> reparameterized < score
        True
    """
    repeats = whole_number("repeats", repeats, least=2)
    refuse_draws("repeats", repeats)
    if not hasattr(method, "optimizer"):
        raise TypeError(f"method: {type(method).__name__} has no optimizer that gradients go to")
    fields: Any = {"optimizer": RECORDER}
    method = dataclasses.replace(method, **fields)
    data = unpack(data)  # never a source of batches
    ready = prepare(model, data, method, Asked(steps=1, batch_size=len(data[1])))
    phase, start = ready.phases[0], make_start(posterior, ready.model)
    numbers = jnp.arange(2 * repeats)
    return GradientMoments(*_repeat(phase, start, ready.data, as_key(key), numbers))


@compiled
def _repeat(phase: Phase, start: Start, data: PyTree, key: jax.Array, numbers: jax.Array) -> Any:
    state = phase.init(start, None, key)
    batch, half = data.everything(), len(numbers) // 2
    # every step is the first one: a warm-up of the KL must not go on
    again = {"step": state.step} if hasattr(state, "step") else {}

    def one(carry: PyTree, number: jax.Array) -> Any:
        state, total, squares, first = carry
        state, _ = phase.step(state._replace(**again), batch, jax.random.fold_in(key, number))
        # sums of distances from a gradient that is about the mean: nothing large cancels
        first = jax.tree.map(lambda f, g: jnp.where(number < half, g, f), first, state.optimizer)
        away = jax.tree.map(jnp.subtract, state.optimizer, first)
        total = jax.tree.map(jnp.add, total, away)
        squares = jax.tree.map(lambda s, d: s + jnp.square(d), squares, away)
        return (state, total, squares, first), None

    zeros = jax.tree.map(jnp.zeros_like, state.optimizer)
    (_, total, squares, first), _ = jax.lax.scan(one, (state, zeros, zeros, zeros), numbers)
    mean = jax.tree.map(lambda t: t / half, total)
    unbiased = lambda s, m: (s / half - jnp.square(m)) * half / (half - 1)  # noqa: E731
    return jax.tree.map(jnp.add, first, mean), jax.tree.map(unbiased, squares, mean)
