"""The one judge: the ELBO of μ and σ on a problem, whoever found them."""

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import posterax as px
from benchmarks.convergence import problems
from benchmarks.convergence.readout import Arrays
from posterax._util.special import inverse_softplus
from posterax._util.tree import named_leaves
from posterax.fitting.prepare import Asked, prepare
from posterax.posteriors import MeanFieldGaussian
from posterax.posteriors.scaled import mean_field_kl

KEY = 20150521  # the same draws of noise for all, so that differences are less noisy than values
KL_DRAWS = 64  # for a prior without a closed form


@lru_cache(maxsize=2)
def problem(name: str) -> problems.Problem:
    """A problem, loaded once."""
    return problems.problem(name)


@lru_cache(maxsize=4)
def _prepared(name: str, prior: str) -> Any:
    known = problem(name)
    asked = Asked(None, 1, known.batch_size)
    data = known.x, known.y
    return prepare(known.model(0, prior), data, px.BayesByBackprop(initial_rho=-3.0), asked)


def as_tree(model: Any, arrays: Arrays) -> Any:
    """Arrays by name as a tree like the model's parameters."""
    names = named_leaves(model.parameters)
    ours = {f"network.{name}": value for name, value in arrays.items()}
    if set(names) != set(ours):
        raise ValueError(f"arrays: {sorted(ours)} are not those of the model, {sorted(names)}")
    for name, like in names.items():  # biases of convolutions are (channels, 1, 1) in Equinox
        if np.squeeze(ours[name]).shape != np.squeeze(np.asarray(like)).shape:
            raise ValueError(f"{name} has shape {ours[name].shape}, not {like.shape}")
    leaves = [jnp.asarray(ours[n], like.dtype).reshape(like.shape) for n, like in names.items()]
    return model.tree_of(leaves)


def as_arrays(tree: Any) -> Arrays:
    """The inverse: a tree of the network's weights as arrays by name, biases with one axis."""
    found = {}
    for name, value in named_leaves(tree.network).items():
        a = np.asarray(value)
        found[name] = a.reshape(-1) if name.endswith("bias") else a
    return found


def as_posterior(name: str, mu: Arrays, sigma: Arrays, prior: str = "own") -> MeanFieldGaussian:
    """q(w) = ∏ N(wᵢ | μᵢ, σᵢ²) on a problem's model."""
    ready = _prepared(name, prior)
    model = ready.model
    rho = jax.tree.map(inverse_softplus, as_tree(model, sigma))
    state = model.network.state
    return MeanFieldGaussian(model, state, ready.plan.targets, mu=as_tree(model, mu), rho=rho)


def kl_of(posterior: MeanFieldGaussian) -> float:
    """KL(q ‖ p), in closed form where there is one."""
    priors, mu, sigma = posterior.model.priors, posterior.mu, posterior.sigma()

    def one(key: jax.Array) -> jax.Array:
        delta = posterior.deviation(key)
        w = jax.tree.map(jnp.add, mu, delta)
        return mean_field_kl(priors, mu, sigma, w)

    keys = jax.random.split(jax.random.key(KEY), KL_DRAWS)
    return float(jnp.mean(jax.lax.map(one, keys)))


def evaluate(
    name: str, mu: Arrays, sigma: Arrays, prior: str = "own", samples: int | None = None
) -> dict[str, Any]:
    """The ELBO in nats with its Monte Carlo error, per row, and its two parts."""
    known = problem(name)
    if not all(np.all(np.isfinite(a)) for a in (*mu.values(), *sigma.values())):
        return {"error": "μ or σ is not finite"}
    posterior = as_posterior(name, mu, sigma, prior)
    samples = samples or known.samples
    bound = px.selection.elbo(posterior, (known.x, known.y), samples=samples, key=KEY)
    kl = kl_of(posterior)
    found = {
        "elbo": bound.value,
        "per_row": bound.value / known.rows,
        "error_per_row": bound.error / known.rows,
        "nll": -bound.value - kl,  # E_q[−log p(D | w)], what the KL leaves of it
        "kl": kl,
        "samples": samples,
    }
    if not np.isfinite(bound.value):
        return {"error": "the ELBO is not finite"}
    return found


def exact_linear() -> tuple[Arrays, Arrays]:
    """The mean-field optimum of ``linear``: the exact mean, and σ² = 1 / diag(precision)."""
    known = problem("linear")
    posterior = px.fit(known.model(0), (known.x, known.y), px.Conjugate())
    mean = as_arrays(posterior.moments()[0])
    x = known.x.astype(np.float64)
    precision = np.concatenate([np.sum(x**2, 0), [len(x)]]) / known.noise**2 + 1
    sigma = 1 / np.sqrt(precision)
    return mean, {"layers.0.weight": sigma[None, :-1], "layers.0.bias": sigma[-1:]}
