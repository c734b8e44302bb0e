"""Predictives of posteriors made by hand, without a fit."""

import jax
import jax.numpy as jnp
import numpy as np

import posterax as px
from posterax import likelihoods as lk
from posterax.posteriors import MeanFieldGaussian
from posterax.predictive import Predictive, Targets

X = np.linspace(-1, 1, 12, dtype="float32")[:, None]
ONE, TWO = Targets((), (1,)), Targets((2,), (2,))
GAUSSIAN, POISSON = lk.Gaussian(0.3), lk.Poisson()


def line(p, x):
    """One for all: what is compiled for a network serves the next one of the same function."""
    return jnp.concatenate([x, jnp.ones_like(x)], 1) @ p["w"]


def predictive_of(likelihood, outputs, targets, *, spread=0.5, samples=7) -> Predictive:
    """At the 12 inputs ``X``, of a mean-field posterior about fixed means."""
    w = jax.random.normal(jax.random.key(7), (2, outputs))
    model = px.Model(({"w": w}, line), None, likelihood).for_targets(targets.inner, jnp.float32)
    rho = jax.tree.map(lambda a: jnp.full(a.shape, np.log(np.expm1(spread))), model.parameters)
    posterior = MeanFieldGaussian(model, model.network.state, targets, mu=model.parameters, rho=rho)
    return posterior.predict(X, samples=samples, key=0)
