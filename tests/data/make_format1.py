"""Makes ``format1/``: a file of every kind in format 1, and ``expected.npz`` with its predictions.

Run once, by posterax 0.1 as it was when the format was fixed:
``python tests/data/make_format1.py``. The files are never made anew: that they are old is what
they are for. What comes later gets a file of its own beside them, by ``add(name)``.
"""

import warnings
from pathlib import Path

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd

import posterax as px

HERE = Path(__file__).parent / "format1"
RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2)).astype("float32")
Y = X[:, 0] * X[:, 1] + 0.5 * X[:, 0]
TABLE = pd.DataFrame(
    {
        "size": [*X[:11, 0], None],
        "town": [*"ababababab", None, "rare"],
        "day": [f"2024-{month:02}-03" for month in range(1, 13)],
        "weight": [f"{10 + i},5 kg" for i in range(12)],
        "row": "all the same",
    }
)
LABELS = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
GRID, NORMAL = px.priors.Grid([-1.0, 1.0]), px.priors.Gaussian(0.7)
AGENTS = ("Thompson", "LinearThompson", "refitted", "own")
BBB = px.BayesByBackprop(learning_rate=0.05)


def model(prior=NORMAL, likelihood=None, network=None, **options):
    network = px.networks.MLP(2, 1, (3,), activation="tanh", key=0) if network is None else network
    return px.Model(network, prior, likelihood or px.likelihoods.Gaussian(0.3), **options)


def fit(method, one=None, y=Y, **options):
    if method.needs.counts == "epochs":
        options = {"epochs": 4}
    return px.fit(one or model(), (X, y), method, key=0, progress=False, **options)


def small_on_a_grid():
    return model(GRID, network=px.networks.MLP(2, 1, (2,), key=0))


def posteriors():
    """Every kind of posterior, by its name; then what else a file can hold."""
    learned = px.likelihoods.Gaussian("learned", initial=0.5)
    laplace, low_rank = px.Laplace("kronecker"), px.BayesByBackprop(family="low_rank", rank=2)
    smooth = px.ImportanceSampling(chains=2)
    yield "MeanFieldGaussian", fit(BBB, model(likelihood=learned))
    yield "FullGaussian", fit(px.BayesByBackprop(family="full"))
    yield "LowRankGaussian", fit(low_rank, model(where="layers.1.*"))
    yield "Radial", fit(px.BayesByBackprop(family="radial"))
    yield "LaplaceGaussian", fit(laplace)
    yield "GaussianMixture", fit(px.DeepEnsemble(2, BBB))
    yield "Draws", fit(px.HMC(chains=2, warmup=4, leapfrog_steps=2), steps=3)
    yield "WeightedDraws", fit(smooth, steps=20)
    yield "DropoutPosterior", fit(px.MCDropout("learned"))
    yield "Enumerated", fit(px.Enumeration(), small_on_a_grid())
    yield "Factorized", fit(px.BlackBoxVI(samples=2), model(GRID))
    yield "Point", fit(px.MaximumAPosteriori(), model(px.priors.ScaleMixture(0.5, 1.0, 0.1)))
    yield "PriorPosterior", px.prior_posterior(model(px.priors.Laplace(0.5)), X)
    first = fit(BBB)
    yield "classes", fit(BBB, model(px.priors.ByPart({"*.weight": NORMAL}, px.priors.Flat()),
                                    px.likelihoods.Categorical(),
                                    px.networks.MLP(2, 3, (3,), key=0)), LABELS)  # fmt: skip
    yield "per_weight", fit(BBB, model(first.as_prior()))
    yield "pruned", px.prune(first, 0.5)
    yield "compact", px.pruning.compact(px.prune(first, 0.7))
    trained = fit(px.MaximumAPosteriori()).network()
    yield "frozen", fit(px.Conjugate(), model(network=trained, where="layers.1.*", rest="frozen"))
    signal = px.networks.TemporalConvNet(2, 1, (2,), 2, key=0)
    yield "sequences", px.prior_posterior(model(network=signal), X.reshape(4, 3, 2))


def estimators():
    settings = {"hidden_layer_sizes": (3,), "members": 2, "epochs": 3, "random_state": 0}
    yield "BayesianRegressor", px.BayesianRegressor(**settings), Y
    yield "BayesianClassifier", px.BayesianClassifier(**settings), np.array(["a", "b", "c"])[LABELS]


def agents():
    small = {"hidden": (3,), "buffer": 8, "batch_size": 4, "updates": 2}
    yield "Thompson", px.bandits.Thompson(**small)
    yield "LinearThompson", px.bandits.LinearThompson()
    yield (
        "refitted",
        px.bandits.Thompson(**small, refit_every=8, epochs=2, method=px.DeepEnsemble(2)),
    )


class Line(eqx.Module):
    """A network that is none of posterax's."""

    weight: jnp.ndarray

    def __call__(self, x):
        return self.weight @ x


def own_policy():
    line = Line(jnp.array([[0.5, -0.5, 0.25, 0.0]]))
    return px.bandits.Thompson(line, buffer=8, batch_size=4, updates=2)


def play(policy):
    agent = px.bandits.Agent(policy, features=2, actions=2, key=0)
    for x, reward in zip(X, Y, strict=True):
        agent.update(x, agent.choose(x), reward)
    return agent


def numbers(name, loaded):
    """What a loaded file says: the same numbers from the same keys."""
    if name in AGENTS:
        return np.array([loaded.choose(x) for x in X[:6]])
    if name == "BayesianClassifier":
        return loaded.predict_proba(X[:3])
    if name == "columns":
        return np.stack(loaded.predict(TABLE[:3], return_std=True))
    if name == "BayesianRegressor":
        return np.stack(loaded.predict(X[:3], return_std=True))
    x = X.reshape(4, 3, 2)[:3] if name == "sequences" else X[:3]
    found = loaded.predict(x, samples=4, key=1)
    return np.stack([found.mean, found.std])


def main():
    HERE.mkdir(exist_ok=True)
    expected = {}
    for name, posterior in posteriors():
        posterior.save(HERE / f"{name}.px")
        expected[name] = numbers(name, load(HERE / f"{name}.px"))
    for name, estimator, y in estimators():
        estimator.fit(X, y).save(HERE / f"{name}.px")
        expected[name] = numbers(name, load(HERE / f"{name}.px"))
    for name, policy in agents():
        play(policy).save(HERE / f"{name}.px")
        expected[name] = numbers(name, load(HERE / f"{name}.px"))
    np.savez_compressed(HERE / "expected.npz", **expected)
    for name in LATER:
        add(name)


def with_columns():
    settings = {"hidden_layer_sizes": (3,), "members": 2, "epochs": 3, "random_state": 0}
    fitted = px.BayesianRegressor(**settings, columns="auto").fit(TABLE, Y)
    fitted.card_ = {"target": "y", "rows": 12}
    return fitted


LATER = {
    "own": lambda: play(own_policy()),  # before policies had ``random_first``
    "columns": with_columns,  # and before that there were no columns
}


def load(path):
    """Whatever lies in a file."""
    if path.stem == "own":
        return px.bandits.load(path, policy=own_policy())
    return px.bandits.load(path) if path.stem in AGENTS else px.load(path)


def add(name):
    """One that came later."""
    LATER[name]().save(HERE / f"{name}.px")
    expected = dict(np.load(HERE / "expected.npz"))
    expected[name] = numbers(name, load(HERE / f"{name}.px"))
    np.savez_compressed(HERE / "expected.npz", **expected)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few steps are enough for a file
        main()
