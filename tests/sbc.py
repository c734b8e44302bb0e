r"""Simulation-based calibration (Talts et al. 2018): is a sampler's posterior the posterior?

Parameters are drawn from the prior and data from the likelihood, many times over. The rank of the
true parameter among L thinned draws from its posterior is then uniform over 0 … L, and a
chi-square test says whether it is. All replications run at once, the phases of the method called
as ``px.fit`` calls them.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chi2

import posterax as px
from posterax.data import Data
from posterax.infer.base import Plan, Start
from posterax.predictive import Targets

ROWS = 8
DRAWS = 15  # 16 ranks


def line_model() -> px.Model:
    """y = a + b x + noise, the noise learned: three parameters, and not a Gaussian posterior."""
    network = ({"a": jnp.zeros(()), "b": jnp.zeros(())}, _line)
    model = px.Model(
        network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise="learned", initial=0.5)
    )
    return model.for_targets((1,), jnp.float32)


def _line(params, x):
    return params["a"] + params["b"] * x


def plan_for(steps: int) -> Plan:
    one = jnp.ones((), jnp.int32)
    return Plan(jnp.asarray(float(ROWS)), one, steps * one, ROWS, Targets((), (1,)))


def simulate(model: px.Model, x: jax.Array, key: jax.Array):
    """True parameters, and data from them."""
    prior_key, noise_key = jax.random.split(key)
    truth = model.sample_prior(prior_key)
    outputs = model.apply(truth, model.network.state, x, None, training=False)[0]
    y = model.likelihood.distribution(outputs, truth.likelihood, None).sample(noise_key)
    return truth, y


def run_phases(phases, model, data, key, steps: int, thin: int = 1):
    """All phases of a method, and (steps, chains, …) of what its last one draws."""
    start = Start(model.parameters, model.network.state, None, given=False)
    for i, phase in enumerate(phases):
        init_key, run_key = jax.random.split(jax.random.fold_in(key, i))
        state = phase.init(start, data, init_key)
        batch = data.everything()

        def step(state, t, phase=phase, batch=batch, run_key=run_key):
            return phase.step(state, batch, jax.random.fold_in(run_key, t))

        if i < len(phases) - 1:
            state, _ = jax.lax.scan(
                lambda s, t, step=step: (step(s, t)[0], None), state, jnp.arange(phase.length())
            )
            start = phase.hand_over(state)

    def kept(state, t):
        def more(k, s):
            return step(s, t * thin + k)[0]

        state = jax.lax.fori_loop(0, thin - 1, more, state)
        state, info = step(state, t * thin + thin - 1)
        return state, info.draw.parameters

    return jax.lax.scan(kept, state, jnp.arange(steps))[1]


def ranks(method, *, replications: int = 320, thin: int = 4, seed: int = 0) -> np.ndarray:
    """(replications, parameters): how many of the draws lie below the truth."""
    model = line_model()
    phases = method.phases(model, plan_for(DRAWS * thin))
    x = jnp.linspace(-1, 1, ROWS)[:, None]

    @eqx.filter_jit
    def all_of_them(keys):
        def one(key):
            simulate_key, fit_key = jax.random.split(key)
            truth, y = simulate(model, x, simulate_key)
            data = Data(x, y, jnp.ones(ROWS), jnp.asarray(ROWS))
            draws = run_phases(phases, model, data, fit_key, DRAWS, thin)
            below = jax.tree.map(lambda d, t: jnp.sum(d[:, 0] < t, axis=0), draws, truth)
            return jnp.stack([b.reshape(-1)[0] for b in jax.tree.leaves(below)])

        return jax.vmap(one)(keys)

    return np.asarray(all_of_them(jax.random.split(jax.random.key(seed), replications)))


def compared(kind: str = "") -> dict[str, str]:
    """What the fixture ``calibration`` says of these figures."""
    words = "ranks of 320 true parameters among draws, smallest p of 3"
    return {"compared": f"{words} ({kind})" if kind else words, "seed": "0"}


def p_values(found: np.ndarray) -> np.ndarray:
    """Of a chi-square test for uniform ranks, for each parameter."""
    result = []
    for column in found.T:
        counts = np.bincount(column, minlength=DRAWS + 1)
        expected = len(column) / (DRAWS + 1)
        result.append(chi2.sf(np.sum((counts - expected) ** 2 / expected), DRAWS))
    return np.array(result)
