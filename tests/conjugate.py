"""The linear model whose posterior is known exactly, and the tests against it.

y = X w + ε, ε ~ N(0, s²), w ~ N(0, 1):  w | D ~ N(S Xᵀy / s², S),  S = (I + XᵀX / s²)⁻¹
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.stats import multivariate_normal

import posterax as px

NOISE = 0.5


class Conjugate(NamedTuple):
    x: np.ndarray
    y: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    log_evidence: float

    @property
    def data(self):
        return self.x, self.y

    def model(self) -> px.Model:
        network = ({"w": jnp.zeros(self.x.shape[1])}, _linear)
        return px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(NOISE))


def _linear(params, x):
    return (x @ params["w"])[:, None]


def conjugate(rows: int = 20, weights: int = 3, seed: int = 0) -> Conjugate:
    """Correlated inputs, so that the posterior's covariance has something to it."""
    rng = np.random.default_rng(seed)
    mix = np.eye(weights) + 0.5 * rng.normal(size=(weights, weights))
    x = rng.normal(size=(rows, weights)) @ mix
    y = x @ rng.normal(size=weights) + NOISE * rng.normal(size=rows)
    covariance = np.linalg.inv(np.eye(weights) + x.T @ x / NOISE**2)
    mean = covariance @ x.T @ y / NOISE**2
    evidence = multivariate_normal(np.zeros(rows), x @ x.T + NOISE**2 * np.eye(rows)).logpdf(y)
    return Conjugate(x.astype("float32"), y.astype("float32"), mean, covariance, evidence)


def t_values(truth: Conjugate, chains: np.ndarray) -> np.ndarray:
    """Student's t of every mean and second moment, chains (chain, draw, weight) being replicates.

    Chains with different seeds are independent, so the spread of their averages is the Monte
    Carlo error of the mean of all, whatever the autocorrelation inside of each.
    """
    scale = np.sqrt(np.diag(truth.covariance))
    z = (np.asarray(chains, np.float64) - truth.mean) / scale
    pairs = np.triu_indices(len(scale))
    seconds = np.einsum("cdi,cdj->cij", z, z)[:, *pairs] / z.shape[1]
    exact = (truth.covariance / np.outer(scale, scale))[pairs]
    each = np.concatenate([z.mean(1), seconds - exact], axis=1)
    return each.mean(0) / (each.std(0, ddof=1) / np.sqrt(len(each)))
