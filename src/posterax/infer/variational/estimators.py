"""How the gradient of a variational bound is sampled: by weights, local noise, or Flipout.

``posteriors/random_weights.py`` runs a network on weights that are distributions.
"""

from typing import Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ...data import Batch
from ...model import Model, Parameters
from ...posteriors.random_weights import forward, has_local
from ..base import Method, Plan

Estimator = Literal["auto", "weight", "local", "flipout"]
M = TypeVar("M", bound=Method)


def settled(method: M, model: Model, plan: Plan) -> M:
    """A method whose estimator is ``"weight"`` where ``"auto"`` means that: a faster program."""
    auto = method.estimator == "auto"  # type: ignore[attr-defined]
    if not auto or plan.inputs is None or has_local(model, plan.inputs):
        return method
    return eqx.tree_at(lambda m: m.estimator, method, "weight")


def sampled_nll(
    model: Model,
    rule: str,
    mu: Parameters,
    sigma: Parameters,
    state: PyTree,
    batch: Batch,
    noise: tuple[jax.Array, jax.Array, jax.Array],
) -> tuple[jax.Array, PyTree]:
    """Σ weight · −log p(y | x, w) over a minibatch with random weights; and the network's state.

    ``noise`` is the key of the weights' noise, its sign, and the network's own key.
    """
    outputs, state, params = forward(model, rule, mu, sigma, state, batch.x, *noise)
    log_p = model.likelihood_of(params, outputs, batch.x, batch.y)
    return -jnp.sum(batch.weight * log_p), state
