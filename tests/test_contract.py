"""One table that every method goes through: a new method is one row here.

fit → predict → save → load → predict identical, progress, checkpoint and resume, weights,
regression and classification, for Equinox, Flax NNX and plain networks; one tiny model a cell.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import posterax as px

BINARY = px.priors.Grid([-1.0, 1.0])
# name: (method, options of fit), and of the model where they are not those of all
METHODS = {
    "bayes_by_backprop": (px.BayesByBackprop(), {"epochs": 3}),
    "local": (px.BayesByBackprop(estimator="local"), {"epochs": 3}),
    "flipout": (px.BayesByBackprop(estimator="flipout"), {"epochs": 3}),
    "black_box": (px.BlackBoxVI(samples=3, baseline="control_variate"), {"epochs": 3}),
    "black_box_grid": (
        px.BlackBoxVI(samples=3),
        {"epochs": 3},
        {"prior": px.priors.Grid([-1.0, 0.0, 1.0])},
    ),
    "full": (px.BayesByBackprop(family="full"), {"epochs": 3}),
    "low_rank": (px.BayesByBackprop(family="low_rank", rank=2), {"epochs": 3}),
    "radial": (
        px.BayesByBackprop(family="radial", gradient="sticking_the_landing"),
        {"epochs": 3},
    ),
    "iwae": (px.BayesByBackprop(objective="iwae", samples=3), {"epochs": 3}),
    "maximum_likelihood": (px.MaximumLikelihood(), {"epochs": 3}),
    "maximum_a_posteriori": (px.MaximumAPosteriori(), {"epochs": 3}),
    "deep_ensemble": (px.DeepEnsemble(members=2), {"epochs": 3}),
    "ensemble_of_posteriors": (px.DeepEnsemble(2, px.BayesByBackprop()), {"epochs": 3}),
    "bootstrap_ensemble": (px.DeepEnsemble(2, "ml", bootstrap=True), {"epochs": 3}),
    "anchored_ensemble": (px.DeepEnsemble(2, anchored=True), {"epochs": 3}),
    "mc_dropout": (px.MCDropout(), {"epochs": 3}),
    "concrete_dropout": (px.MCDropout("learned", "*"), {"epochs": 3}),
    "hmc": (px.HMC(chains=2, warmup=8, leapfrog_steps=3), {"steps": 6}),
    "nuts": (px.NUTS(chains=2, warmup=8, max_doublings=3), {"steps": 6}),
    "mclmc": (px.MCLMC(chains=2, warmup=8, ensemble_steps=4), {"steps": 6}),
    "mclmc_adjusted": (
        px.MCLMC(chains=2, warmup=40, ensemble_steps=4, adjusted=True, steps_between=3),
        {"steps": 6},
    ),
    "sgld": (px.SGLD(chains=2), {"steps": 12}),
    "sghmc": (
        px.SGHMC(chains=2, schedule="cyclical", cycles=2, preconditioner="rmsprop"),
        {"steps": 12},
    ),
    "swag": (px.SWAG(rank=3, collect=1, learning_rate=1e-2), {"epochs": 3, "batch_size": 5}),
    "svgd": (px.SVGD(particles=3), {"epochs": 3}),
    "smc": (px.SMC(particles=16, groups=2, mutation_steps=2), {}),
    "metropolis": (px.Metropolis(chains=2, warmup=40), {"steps": 40}),
    "langevin": (px.Metropolis(chains=2, warmup=40, proposal="langevin"), {"steps": 40}),
    "flips": (px.Metropolis(chains=2, warmup=8), {"steps": 40}, {"prior": BINARY}),
    "simulated_annealing": (px.SimulatedAnnealing(chains=2, path=5), {"steps": 40}),
    "laplace": (px.Laplace("full"), {"epochs": 3}),
    "laplace_kronecker": (px.Laplace("kronecker", predictive="sampled"), {"epochs": 3}),
    "laplace_last_layer": (
        px.Laplace("last_layer", train=False, prior_precision="per_array"),
        {},
    ),
    "importance_sampling": (px.ImportanceSampling(chains=4), {"steps": 8}),
    "enumeration": (px.Enumeration(chunk=2048), {}, {"prior": BINARY}),
    "conjugate": (
        px.Conjugate(),
        {},
        {"where": "layers.1.*", "rest": "frozen", "likelihood": px.likelihoods.Gaussian(0.5)},
    ),
}


def equinox_network(outputs):
    return px.networks.MLP(2, outputs, (3,), key=0)


class Flax(nnx.Module):
    def __init__(self, outputs):
        rngs = nnx.Rngs(0)
        self.first = nnx.Linear(2, 3, rngs=rngs)
        self.last = nnx.Linear(3, outputs, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.tanh(self.first(x)))


def plain_network(outputs):
    rng = np.random.default_rng(0)
    params = {"a": rng.normal(size=(2, 3)), "b": rng.normal(size=(3, outputs))}
    return {k: jnp.asarray(v, jnp.float32) for k, v in params.items()}, plain_apply


def plain_apply(params, x):
    return jnp.tanh(x @ params["a"]) @ params["b"]


NETWORKS = {"equinox": equinox_network, "flax": Flax, "plain": plain_network}
TASKS = {
    "regression": (1, px.likelihoods.Gaussian(noise="learned", initial=0.5)),
    "classification": (3, px.likelihoods.Categorical()),
}


def data_for(task):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(12, 2)).astype("float32")
    y = x[:, 0] if task == "regression" else (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
    return x, y, np.linspace(0.5, 1.5, 12)


def summary(predictive, y):
    return np.concatenate(
        [np.ravel(a) for a in (*predictive._summary, predictive.log_prob(y), predictive.sample(3))]
    )


# variants of a method above share its code: fewer cells
PARTIAL = {
    "local": [("classification", n) for n in NETWORKS],
    "flipout": [("regression", n) for n in NETWORKS],
    "black_box": [("classification", "flax")],
    "black_box_grid": [("regression", "equinox")],  # the learned noise is Gaussian
    "full": [("regression", "plain")],
    "low_rank": [("classification", "equinox")],
    "radial": [("regression", "flax")],
    "iwae": [("classification", "plain")],
    "maximum_likelihood": [("regression", "plain")],
    "maximum_a_posteriori": [("classification", "flax")],
    "ensemble_of_posteriors": [("classification", "equinox")],
    "bootstrap_ensemble": [("classification", "plain")],
    "anchored_ensemble": [("regression", "flax")],
    "mc_dropout": [("regression", "equinox"), ("classification", "flax")],
    "concrete_dropout": [("classification", "plain")],
    "hmc": [("classification", "plain")],
    "mclmc": [("regression", "equinox"), ("classification", "plain")],
    "mclmc_adjusted": [("classification", "flax")],
    "sgld": [("regression", "equinox"), ("classification", "plain")],
    "sghmc": [("classification", "flax")],
    "swag": [("regression", "equinox")],
    "svgd": [("classification", "flax")],
    "smc": [("regression", "plain"), ("classification", "equinox")],
    "metropolis": [("regression", "equinox"), ("classification", "flax")],
    "langevin": [("regression", "plain")],
    "flips": [("regression", "plain"), ("classification", "equinox")],
    "simulated_annealing": [("classification", "plain"), ("regression", "equinox")],
    "laplace": [("regression", "plain")],
    "laplace_kronecker": [("classification", "equinox")],
    "laplace_last_layer": [("classification", "flax")],
    "enumeration": [("classification", "plain")],  # 2^15 states; the learned noise has no grid
    "conjugate": [("regression", "equinox")],  # the last layer alone
}
CELLS = [
    (name, task, network)
    for name in METHODS
    for task, network in PARTIAL.get(name, [(t, n) for t in TASKS for n in NETWORKS])
]
# one cell of each method is always run, and all of the first: what a method does not know of, the
# library of a network and the kind of its targets, differs no more from one to the next
ALWAYS = [cell for cell in CELLS if cell[0] == "bayes_by_backprop"]
ALWAYS += [next(cell for cell in CELLS if cell[0] == name) for name in METHODS]


@pytest.mark.usefixtures("hasty_compiler")
@pytest.mark.filterwarnings("ignore:.*candidates count")  # so few of them are not enough
@pytest.mark.filterwarnings("ignore:.*transitions .*diverged")  # nor so little warm-up
@pytest.mark.parametrize(
    ("name", "task", "network"),
    [pytest.param(*cell, marks=[pytest.mark.slow] * (cell not in ALWAYS)) for cell in CELLS],
)
def test_contract(name, task, network, tmp_path, capsys):
    method, options, *own = METHODS[name]
    outputs, likelihood = TASKS[task]
    parts = {"prior": px.priors.Gaussian(1.0), "likelihood": likelihood, **(own[0] if own else {})}
    model = px.Model(NETWORKS[network](outputs), **parts)
    data = data_for(task)
    x, y, _ = data

    # fit with progress and a checkpoint; the same call again resumes at the end
    events = []
    folder = tmp_path / "checkpoint"
    settings = options | {"key": 0, "checkpoint": folder}
    posterior = px.fit(model, data, method, progress=True, callbacks=[events.append], **settings)
    assert events
    assert events[-1].step == events[-1].total
    assert any(title in capsys.readouterr().err for title in {e.phase for e in events})
    assert posterior.history
    assert all(np.all(np.isfinite(values)) for values in posterior.history.values())
    resumed = px.fit(model, data, method, **settings)

    # predict: shapes, the law of total uncertainty, the same from a file
    predictive = posterior.predict(x, samples=5, key=3)
    assert predictive.mean.shape == ((12,) if task == "regression" else (12, 3))
    assert predictive.total.shape == (12,)
    np.testing.assert_allclose(
        predictive.epistemic + predictive.aleatoric, predictive.total, rtol=1e-4, atol=1e-6
    )
    path = tmp_path / "posterior.px"
    posterior.save(path)
    loaded = px.load(path, model=None if network == "equinox" else model)
    for same in (loaded, resumed):
        again = same.predict(x, samples=5, key=3)
        np.testing.assert_array_equal(summary(again, y), summary(predictive, y))
        assert same.history.keys() == posterior.history.keys()

    # sampling, and weights that count: another weighting gives another posterior
    assert posterior.sample(0, 4).network is not None
    other = px.fit(model, (x, y, data[2][::-1] ** 4), method, key=0, **options)
    # by its numbers: a few draws of weights on a grid may be the same although they are not
    numbers = [
        [*jax.tree.leaves(p.moments()), p.predict(x, samples=5, key=3).mean]
        for p in (other, posterior)
    ]
    assert any(not np.array_equal(a, b) for a, b in zip(*numbers, strict=True))

    # going on for as long again, where there is more to do
    longer = px.fit(model, data, method, key=0, resume=posterior, **options)
    last = next(name for name in longer.history if "/" not in name)
    times = 1 if method.needs.counts == "nothing" else 2
    assert len(longer.history[last]) == times * len(posterior.history[last])
