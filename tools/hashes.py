"""Hashes of small fits, one of each family: the same bits with the same jaxlib, whatever else.

``python -m tools.hashes`` prints JSON: the versions, what the arithmetic depends on, and a hash of
the posterior and its predictions for each fit.
"""

import hashlib
import json
import platform
from importlib.metadata import version
from typing import Any

import numpy as np

import posterax as px

FITS: dict[str, tuple[Any, dict[str, Any]]] = {
    "maximum_a_posteriori": (px.MaximumAPosteriori(), {"epochs": 20}),
    "bayes_by_backprop": (px.BayesByBackprop(), {"epochs": 20}),
    "bayes_by_backprop, local": (px.BayesByBackprop(estimator="local"), {"epochs": 20}),
    "black_box_vi": (px.BlackBoxVI(), {"epochs": 20}),
    "ivon": (px.IVON(), {"epochs": 20}),
    "svgd": (px.SVGD(particles=4), {"epochs": 20}),
    "deep_ensemble": (px.DeepEnsemble(members=3), {"epochs": 20}),
    "mc_dropout": (px.MCDropout(), {"epochs": 20}),
    "swag": (px.SWAG(learning_rate=1e-2), {"epochs": 40, "batch_size": 8}),
    "laplace": (px.Laplace("full"), {"epochs": 20}),
    "hmc": (px.HMC(chains=2, warmup=20, leapfrog_steps=5), {"steps": 20}),
    "mclmc": (px.MCLMC(chains=2, warmup=20, ensemble_steps=20), {"steps": 20}),
    "metropolis": (px.Metropolis(chains=2, warmup=50), {"steps": 50}),
    "sghmc": (px.SGHMC(chains=2), {"steps": 50}),
    "importance_sampling": (px.ImportanceSampling(chains=8), {"steps": 20}),
}


def hashes() -> dict[str, str]:
    """Each fit of ``FITS`` on 96 rows and a network of one hidden layer."""
    import jax

    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (96, 2)).astype("float32")
    y = (np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=96)).astype("float32")
    found = {}
    for name, (method, options) in FITS.items():
        network = px.networks.MLP(2, 1, (8,), key=0)
        model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
        posterior = px.fit(model, (x, y), method, key=0, **options)
        predictive = posterior.predict(x[:8], samples=16, key=1)
        digest = hashlib.blake2b(digest_size=8)
        for leaf in jax.tree.leaves((posterior.sample(2, 4), predictive.mean, predictive.std)):
            if hasattr(leaf, "dtype"):
                digest.update(np.asarray(leaf).tobytes())
        found[name] = digest.hexdigest()
    return found


def main() -> None:
    from posterax._util.machine import arithmetic

    names = ("posterax", "jax", "jaxlib", "equinox", "optax", "numpyro", "blackjax", "numpy")
    versions = {"python": platform.python_version()} | {name: version(name) for name in names}
    print(json.dumps({"versions": versions, "arithmetic": arithmetic(), "hashes": hashes()}))


if __name__ == "__main__":
    main()
