"""What a look at a posterior and its data tells, as plain numbers that a record can hold.

Everything but the bound is computed on at most 512 rows.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from .._util.keys import KeyLike
from .._util.noise import noise_key
from .._util.special import softplus
from .._util.tree import named_leaves
from ..data import Data, bucket, pad_rows
from ..likelihoods.regression import deviations, known_noise
from ..model import Model, Parameters
from ..posteriors import MeanFieldGaussian, Posterior, PriorPosterior
from ..posteriors.draws import pareto_smooth
from ..posteriors.laplace import priors_of
from ..priors import Prior, is_flat, is_prior
from ..program.compiled import compiled
from ..program.input_units import input_units
from .bound import Totals

FEW = 512  # rows
ACTIVE = 0.1  # nats of KL from the prior that make a weight active
PRIOR_DRAWS, PRIOR_ROWS = 8, 64
K_HAT = 0.7  # above it importance weights have no useful variance
FEWEST = 10  # draws that must count for k-hat to say more than that q is far; arviz loads slowly


def measure(
    posterior: Posterior,
    data: Data,
    *,
    samples: int,
    key: KeyLike,
    totals: Totals | None = None,
) -> dict[str, Any]:
    """What tells whether a variational posterior can be trusted, in plain numbers.

    ``constant_nll`` is that of the best constant outputs, in nats a row, and ``free_noise_nll``
    where the noise is known that of a constant with Gaussian noise of its own; ``prior_scale`` the
    deviation of outputs under the prior, beside ``target_scale`` (1 for classes, whose outputs are
    logits), and ``prior_gain`` how much the widest layer adds to it; ``active`` the share of
    weights of an array whose KL from the prior is above 0.1 nats; ``active_units`` the share of
    the units behind a matrix with an active weight coming in; ``kl_per_active`` in nats;
    ``sigma_change`` how far the logarithms of the deviations went from their start; ``shift`` how
    far importance weights move the predictions, in predictive deviations, where the weights'
    ``k_hat`` allows; ``effective`` how many of the draws count by these weights; ``flat`` by how
    many nats a row the rows of a classification would be more probable with logits 2 or 4 times as
    large.

    Args:
        posterior: as a fit ends with it, record and all.
        data: its rows.
        samples: draws for the importance weights.
        key: an int or a JAX key.
        totals: what ``draw_by_draw`` gave with the same draws; without, ``shift`` is not known.
    """
    x, y, weight = few_rows(data)
    found: dict[str, Any] = {
        "constant_nll": constant_nll(posterior, x, y, weight),
        **_free_noise(posterior.model, y, weight),
        "weights": posterior.model.bayesian_size,
        **_scales(posterior, x, y, weight),
    }
    if isinstance(posterior, MeanFieldGaussian):
        found |= _activity(posterior, x) | {"sigma_change": _sigma_change(posterior)}
        if found["classes"]:
            found["flat"] = _flatness(posterior.bare(), x, y, jnp.asarray(weight / weight.sum()))
    if totals is not None:
        found |= _corrected(posterior, x, samples, key, totals)
    return plain(found)


def few_rows(data: Data) -> tuple[PyTree, jax.Array, np.ndarray]:
    """At most 512 rows that count, evenly spread; padded with rows of weight 0 to a shared size."""
    rows = np.flatnonzero(np.asarray(data.weight) > 0)
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), FEW)).round().astype(int))]
    size = bucket(len(rows))
    take = lambda a: pad_rows(np.asarray(a)[rows], size)  # noqa: E731
    weight = np.asarray(data.weight, np.float64)[rows]
    weight = np.concatenate([weight, np.zeros(size - len(rows))])
    return jax.tree.map(take, data.x), take(data.y), weight


def plain(found: Any) -> Any:
    """As a file has it: ``None`` for what is not finite."""
    if isinstance(found, dict):
        return {name: plain(value) for name, value in found.items()}
    if isinstance(found, list):
        return [plain(value) for value in found]
    if isinstance(found, str | bool | int) or found is None:
        return found
    return float(found) if math.isfinite(found) else None


# -- the data alone


def constant_nll(
    posterior: Posterior,
    x: PyTree,
    y: Any,
    weight: np.ndarray,
    on: tuple[PyTree, Any, np.ndarray] | None = None,
) -> float:
    """The NLL a row of the best constant outputs, with the likelihood's parameters as good.

    ``on``: other rows, to which the constant that is best for the first is applied.
    """
    from scipy.optimize import minimize

    model = posterior.model
    shape = model.output_shape(jax.tree.map(lambda a: a[:1], x))[1:]
    dtype = jax.tree.leaves(model.parameters)[0].dtype
    start = jnp.zeros(shape, dtype), model.parameters.likelihood
    flat, unravel = ravel_pytree(start)

    def value(c: np.ndarray, x: PyTree, y: Any, weight: np.ndarray) -> tuple[np.ndarray, ...]:
        share = jnp.asarray(weight / weight.sum(), dtype)
        found = _constant(model, unravel, jnp.asarray(c, dtype), x, y, share)
        return tuple(np.asarray(a, np.float64) for a in found)

    best = minimize(value, np.asarray(flat), (x, y, weight), jac=True, method="L-BFGS-B")
    nll = best.fun if on is None else value(best.x, *on)[0]
    return float(nll) if np.isfinite(nll) else math.nan


def _free_noise(model: Model, y: Any, weight: np.ndarray) -> dict[str, Any]:
    """The known noise beside the targets', and the NLL a row of a constant with theirs."""
    likelihood = model.likelihood
    if likelihood.kind != "regression" or getattr(likelihood, "noise", None) is None:
        return {}
    noise = known_noise(likelihood)
    if noise is None:
        return {}
    each = deviations(np.asarray(y, np.float64), weight)
    nll = float(np.sum(np.log(each)) + each.size * math.log(2 * math.pi * math.e) / 2)
    return {
        "noise_share": float(np.min(noise / each)), "outputs": each.size, "free_noise_nll": nll,
    }  # fmt: skip


@compiled
def _constant(
    model: Model, unravel: Any, flat: jax.Array, x: PyTree, y: jax.Array, share: jax.Array
) -> Any:
    def nll(flat: jax.Array) -> jax.Array:
        output, own = unravel(flat)
        outputs = jnp.broadcast_to(output, (len(y), *output.shape))
        each = model.likelihood_of(Parameters(None, own), outputs, x, y)
        return -jnp.sum(share * each)

    return jax.value_and_grad(nll)(flat)


def _scales(posterior: Posterior, x: PyTree, y: Any, weight: np.ndarray) -> dict[str, Any]:
    """The deviation of outputs under the prior and of what they have to reach."""
    model = posterior.model
    some = jax.tree.map(lambda a: a[:PRIOR_ROWS], x)
    before = PriorPosterior(model, posterior.state, posterior.targets)
    if posterior.members:  # every member has a state of its own
        before = PriorPosterior(model, model.network.state, posterior.targets)
    outputs = np.asarray(_outputs(before, some), np.float64)
    prior_scale = float(np.sqrt(np.median(np.square(outputs).mean((1, *range(2, outputs.ndim))))))
    spread = float(np.std(np.asarray(y, np.float64)[weight > 0]))
    regression = model.likelihood.kind == "regression"
    return {
        "prior_scale": prior_scale,
        "target_scale": spread if regression else 1.0,
        "prior_gain": _gain(model),
        "classes": model.likelihood.kind == "classification",
    }


@compiled
def _outputs(before: PriorPosterior, x: PyTree) -> jax.Array:
    """Outputs of the network under a few draws of the prior, one program for all of it."""
    keys = jax.random.split(noise_key(jax.random.key(0)), PRIOR_DRAWS)
    x = before.model.likelihood.split(x)[0]

    def one(key: jax.Array) -> jax.Array:
        w = before.parameters(key)
        return before.model.apply(w, before.state, x, None, training=False)[0]

    return jax.lax.map(one, keys)


def _gain(model: Model) -> float:
    """The largest factor, over matrices, by which a layer under the prior widens its inputs."""
    gains = [
        float(np.max(np.asarray(prior.deviation()))) * math.sqrt(model.network.fan_in(w.shape, n))
        for (n, w), prior in zip(
            named_leaves(model.parameters.network).items(),
            jax.tree.leaves(model.priors.network, is_leaf=is_prior),
            strict=True,
        )
        if w.ndim > 1 and prior.deviation() is not None
    ]
    return max(gains, default=math.nan)


# -- weights


def _activity(posterior: MeanFieldGaussian, x: PyTree) -> dict[str, Any]:
    """Which weights q tells from the prior, by array and by hidden unit."""
    kl = named_leaves(_weight_kl(posterior.bare(), priors_of(posterior)))
    active = {name: np.asarray(a) > ACTIVE for name, a in kl.items()}
    count = sum(int(a.sum()) for a in active.values())
    total = sum(float(np.sum(np.where(active[n], np.asarray(a), 0))) for n, a in kl.items())
    return {
        "active": {name: a.mean() for name, a in active.items()},
        "active_units": _units(posterior.model, x, active),
        "kl_per_active": total / count if count else math.nan,
    }


@compiled
def _flatness(posterior: MeanFieldGaussian, x: PyTree, y: jax.Array, share: jax.Array) -> jax.Array:
    """What sharper classes would gain on the rows of the fit, at the mean weights.

    A maximum of the likelihood gains nothing; where a prior holds the logits back, much.
    """
    model, w = posterior.model, posterior.mu
    outputs, _ = model.apply(w, posterior.state, model.likelihood.split(x)[0], None, training=False)

    def nll(times: float) -> jax.Array:
        return -jnp.sum(share * model.likelihood_of(w, times * outputs, x, y))

    return nll(1.0) - jnp.min(jnp.stack([nll(1.0), nll(2.0), nll(4.0)]))


@compiled
def _weight_kl(posterior: MeanFieldGaussian, priors: Parameters) -> Any:
    """KL(q ‖ p) of every weight; of a prior without closed form, of a Gaussian as wide."""

    def leaf(prior: Prior, mu: jax.Array, rho: jax.Array | None) -> jax.Array | None:
        if rho is None:
            return None
        sigma = softplus(rho)
        exact = prior.kl_from_gaussian(mu, sigma)
        if exact is not None and jnp.shape(exact) == mu.shape:
            return exact
        scale = prior.deviation()
        if scale is None:
            return None
        ratio = jnp.square(sigma / scale)
        return 0.5 * (ratio + jnp.square(mu / scale) - 1 - jnp.log(ratio))

    return jax.tree.map(leaf, priors, posterior.mu, posterior.rho, is_leaf=is_prior)


def _units(model: Model, x: PyTree, active: dict[str, np.ndarray]) -> dict[str, float]:
    """Of the matrices that lead to hidden units, the share of units with an active weight."""

    def network(weights: PyTree, x: PyTree, state: PyTree) -> PyTree:
        return model.apply(Parameters(weights, None), state, x, None, training=False)[0]

    weights, one = model.parameters.network, jax.tree.map(lambda a: a[:1], x)
    try:
        each = input_units(network, weights, one, model.network.state)
    except (NotImplementedError, ValueError):  # a network whose program cannot be read
        return {}
    found = {}
    for name, units in zip(named_leaves(weights), each, strict=True):
        known = active.get(f"network.{name}")
        if units is None or known is None or known.ndim != 2:
            continue
        rows, columns = np.shape(units.units)  # one of them is 1, or both with a single input
        inputs_first = rows > 1 or (columns == 1 and known.shape[0] == 1)
        found[name] = float(known.any(0 if inputs_first else 1).mean())
    return dict(list(found.items())[:-1])  # the last leads to the outputs


def _sigma_change(posterior: MeanFieldGaussian) -> float:
    """Root mean square of log σ − log σ at the start, as the method's settings tell it."""
    settings = posterior.record.settings if posterior.record is not None else {}
    arguments = (settings.get("method_settings") or {}).get("arguments", {})
    start = arguments.get("initial_rho")
    if start is None:
        return math.nan
    changes = []
    rho = named_leaves(posterior.rho)
    priors = named_leaves(posterior.model.priors, is_leaf=is_prior)
    for name, own in rho.items():
        if is_flat(priors[name]):
            continue
        first = priors[name].deviation() if start == "prior" else np.logaddexp(0.0, start)
        if first is None:
            return math.nan
        sigma = np.logaddexp(0.0, np.asarray(own, np.float64))
        changes.append(np.ravel(np.log(sigma) - np.log(np.asarray(first, np.float64))))
    return float(np.sqrt(np.mean(np.square(np.concatenate(changes))))) if changes else math.nan


# -- predictions


def _corrected(
    posterior: Posterior, x: PyTree, samples: int, key: KeyLike, totals: Totals
) -> dict[str, float]:
    """How far the weights p(D, w) / q(w) move the predictions."""
    count = {"effective": totals.effective}
    if count["effective"] < FEWEST:
        return count
    log_weights, k_hat = pareto_smooth(totals.log_likelihoods + totals.log_ratios)
    if not k_hat <= K_HAT:
        return count
    predictive = posterior.predict(x, samples=samples, key=key)
    means = predictive.conditional_means().astype(np.float64)
    weights = np.exp(log_weights)
    mean = means.mean(0)
    variance = np.asarray(predictive.variance, np.float64).reshape(len(mean), -1)
    if predictive.kind == "classification":
        variance = (mean * (1 - mean)).reshape(len(mean), -1)
    moved = (np.tensordot(weights, means, 1) - mean).reshape(len(mean), -1)
    shift = np.sqrt(np.mean(np.square(moved) / np.maximum(variance, 1e-12)))
    return count | {"shift": float(shift)}
