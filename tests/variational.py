"""What the tests of variational families share: one phase on the conjugate model, z-values."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy import stats

from posterax.data import Batch
from posterax.infer.base import Plan, Start
from posterax.posteriors.symmetric import Signed
from posterax.predictive import Targets
from tests.conjugate import conjugate

LANDING = "sticking_the_landing"
TRUTH = conjugate(rows=20, weights=4, seed=5)  # correlations up to 0.8
SCALE = np.sqrt(np.diag(TRUTH.covariance))


def phase_of(method, model=None, n=20, batches=1, posterior=None):
    model = (model or TRUTH.model()).for_targets((1,), jnp.float32)
    plan = Plan(
        jnp.asarray(float(n)), jnp.asarray(batches), jnp.asarray(1000), n // batches,
        Targets((1,), (1,)),
    )  # fmt: skip
    (phase,) = method.phases(model, plan)
    params = model.parameters if posterior is None else posterior.moments()[0]
    start = Start(params, model.network.state, posterior, given=posterior is not None)
    return phase, phase.init(start, None, jax.random.key(0))


def batch_of(x, y, i=0):
    return Batch(jnp.asarray(x), jnp.asarray(y).reshape(-1, 1), jnp.ones(len(y)), jnp.asarray(i))


def somewhere(state, seed=0):
    """A state whose parameters are nothing special."""
    rng = np.random.default_rng(seed)
    size = {"mu": 0.5, "rho": 0.3, "lower": 0.4, "factor": 0.4}

    def moved(name, tree):
        shift = {"rho": -1.0}.get(name, 0.0)
        return jax.tree.map(
            lambda a: jnp.asarray(shift + size[name] * rng.normal(size=a.shape), a.dtype), tree
        )

    given = {name: moved(name, tree) for name, tree in state.variational.items()}
    return state._replace(variational=given)


def gradients(phase, state, batch, count):
    """Gradients of many steps, as rows."""
    keys = jax.random.split(jax.random.key(1), count)
    one = lambda key: ravel_pytree(phase.gradient(state, batch, key)[0])[0]  # noqa: E731
    return np.asarray(jax.jit(jax.vmap(one))(keys), np.float64)


def z_values(rows, truth=0.0):
    return (rows.mean(0) - truth) / (rows.std(0, ddof=1) / np.sqrt(len(rows)))


def bound_on_z(count):
    """|z| of so many numbers stays below this with probability 0.9999."""
    return stats.norm.isf(1e-4 / 2 / count)


def kl_both_ways(phase, q):
    """KL in closed form, as far as it goes, and sampled: at the same 4,000 draws."""

    @jax.jit
    @jax.vmap
    def both(key):
        w = q.parameters(Signed(key, jnp.ones(())))
        return phase.kl(q, q, w, sampled=False), phase.kl(q, q, w, sampled=True)

    keys = jax.random.split(jax.random.key(0), 4000)
    return (np.asarray(values, np.float64) for values in both(keys))
