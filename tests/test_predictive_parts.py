"""Parts, covariances, distribution functions and shortest intervals, against other ways there."""

import functools
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, optimize, special, stats

import posterax as px
from posterax import likelihoods as lk
from posterax.posteriors import Draws
from posterax.predictive import Targets
from tests.test_predictive import KINDS, ONE, X, close, posterior_of, weighted

pytestmark = pytest.mark.usefixtures("hasty_module")

TWO = Targets((2,), (2,))
LOG_NORMAL = lk.From(lambda f: dist.LogNormal(f, 0.7))


@functools.cache  # predictives of one posterior share their programs
def posterior(name):
    return posterior_of(*KINDS[name])


def predict(name, **settings):
    return posterior(name).predict(X, **{"samples": 6, "key": 0} | settings)


# -- parts


@pytest.mark.parametrize("name", KINDS)
def test_both_decompositions_add_up(name):
    for by in ("entropy", "variance"):
        parts = predict(name).parts(by)
        close(parts.epistemic + parts.aleatoric, parts.total)
        assert np.all(parts.epistemic > (0 if by == "variance" else -1e-5))


@pytest.mark.parametrize("name", ["gaussian", "categorical"])
def test_one_sample_knows_nothing_of_other_weights(name):
    predictive = predict(name, samples=1)
    np.testing.assert_allclose(predictive.parts("variance").epistemic, 0, atol=1e-7)
    np.testing.assert_allclose(predictive.parts("entropy").epistemic, 0, atol=1e-5)
    assert np.all(np.isfinite(predictive.interval(0.9, "highest")))


@pytest.mark.parametrize("name", ["gaussian", "student", "multivariate", "poisson"])
def test_aleatoric_entropy_is_that_of_the_likelihood(name):
    """The parts by entropy add up by construction; this part has another way there."""
    predictive = predict(name)
    rate = np.exp(predictive.outputs().astype(float)[..., 0])
    exact = {
        "gaussian": lambda: stats.norm(0, 0.3).entropy(),
        "student": lambda: 2 * stats.t(5.0, 0, 0.3).entropy(),
        "multivariate": lambda: stats.multivariate_normal(
            np.zeros(2), KINDS["multivariate"][0].covariance
        ).entropy(),
        "poisson": lambda: stats.poisson(rate).entropy().mean(0),
    }[name]()
    # −log p of a draw has a deviation of 0.71, 1.3, 1 and at most about 1
    assert np.all(np.abs(predictive.parts("entropy").aleatoric - exact) < 4.5 * 1.3 / np.sqrt(1000))


def test_variance_of_classes_by_hand():
    predictive = predict("categorical")
    p = special.softmax(predictive.outputs().astype(float), -1)
    parts = predictive.parts("variance")
    close(parts.epistemic, p.var(0))
    close(parts.aleatoric, (p * (1 - p)).mean(0))
    close(parts.total, p.mean(0) * (1 - p.mean(0)))


def test_entropies_of_regression_by_quadrature():
    predictive = predict("predicted", samples=4)
    f = predictive.outputs().astype(float)[:, 0]
    components = stats.norm(f[:, 0], np.log1p(np.exp(f[:, 1])) + 1e-4)
    density = lambda y: components.pdf(y).mean()  # noqa: E731
    low, high = (components.mean() + 12 * s * components.std() for s in (-1, 1))
    total = integrate.quad(
        lambda y: special.entr(density(y)), low.min(), high.max(), points=f[:, 0], limit=400
    )[0]
    inside = components.entropy().mean()
    parts = predictive.parts("entropy")
    # −log p(y) of 1000 draws has a deviation below 1.5 nats here
    assert abs(parts.total[0] - total) < 4 * 1.5 / np.sqrt(1000)
    assert abs(parts.aleatoric[0] - inside) < 4 * 1.5 / np.sqrt(1000)
    wider = predictive.in_units(3.0, 10.0).parts("entropy")
    close(wider.total, parts.total + np.log(10))
    close(wider.epistemic, parts.epistemic)


# -- covariances


def test_covariance_of_correlated_outputs():
    likelihood = KINDS["multivariate"][0]
    predictive = predict("multivariate")
    f = predictive.outputs().astype(float)
    apart = f - f.mean(0)
    epistemic = np.einsum("sni,snj->nij", apart, apart) / len(f)
    close(predictive.covariance("epistemic"), epistemic)
    close(predictive.covariance("aleatoric"), np.tile(likelihood.covariance, (11, 1, 1)))
    close(predictive.covariance(), epistemic + likelihood.covariance)
    scaled = predictive.in_units([1.0, 2.0], [10.0, 0.5])
    close(scaled.covariance()[:, 0, 1], 5 * predictive.covariance()[:, 0, 1])


@pytest.mark.parametrize("name", ["predicted", "student", "multivariate", "bernoulli"])
def test_variances_are_on_the_diagonal(name):
    predictive = predict(name)
    for part in ("epistemic", "aleatoric", "total"):
        diagonal = np.diagonal(predictive.covariance(part), axis1=-2, axis2=-1)
        variances = getattr(predictive.parts("variance"), part)
        close(diagonal.reshape(variances.shape), variances)


def test_covariance_of_classes():
    predictive = predict("categorical")
    p = special.softmax(predictive.outputs().astype(float), -1)
    inside = np.mean([np.stack([np.diag(r) - np.outer(r, r) for r in s]) for s in p], axis=0)
    close(predictive.covariance("aleatoric"), inside)
    close(predictive.covariance().sum(-1), np.zeros((11, 3)))  # indicators sum to one


# -- distribution functions


@pytest.mark.parametrize("name", ["gaussian", "student", "multivariate", "poisson"])
def test_distribution_function(name):
    predictive = predict(name)
    f = predictive.outputs().astype(float)
    y = {"student": np.concatenate([X, -X], 1), "multivariate": np.concatenate([X, -X], 1)}.get(
        name, np.arange(11.0)[:, None]
    )
    truth = {
        "gaussian": lambda: stats.norm(f, 0.3).cdf(y),
        "student": lambda: stats.t(5.0, f, 0.3).cdf(y),
        "multivariate": lambda: stats.norm(f, np.sqrt([1.0, 0.5])).cdf(y),
        "poisson": lambda: stats.poisson(np.exp(f)).cdf(y),
    }[name]().mean(0)
    shape = (11, 2) if len(y[0]) == 2 else (11,)
    np.testing.assert_allclose(predictive.cdf(y.reshape(shape)), truth.reshape(shape), atol=2e-5)
    if name != "poisson":
        level = predictive.cdf(predictive.quantile(0.3))
        np.testing.assert_allclose(level, 0.3, atol=1e-4)
        scaled = predictive.in_units(2.0, 3.0)
        np.testing.assert_allclose(scaled.cdf(scaled.quantile(0.3)), 0.3, atol=1e-4)


@pytest.mark.parametrize(
    ("family", "truth"),
    [
        (lambda f: dist.Cauchy(f, 1.0), stats.cauchy),
        (lambda f: dist.LogNormal(f, 4.0), lambda f: stats.lognorm(4.0, scale=np.exp(f))),
        (lambda f: dist.Beta(2.0 + 0 * f, 0.5).to_event(1), lambda f: stats.beta(2 + 0 * f, 0.5)),
    ],
    ids=["Cauchy", "LogNormal", "Beta"],
)
def test_quantiles_of_wild_targets(family, truth):
    """Deviations that are infinite or huge, and ends of the support."""
    predictive = posterior_of(lk.From(family), 1, ONE, spread=1e-6).predict(X, samples=2, key=0)
    exact = truth(predictive.outputs()[0, :, 0].astype(float))
    levels = np.array([0.02, 0.5, 0.98])
    found = predictive.quantile(levels)
    np.testing.assert_allclose(exact.cdf(found), np.tile(levels[:, None], (1, 11)), atol=1e-4)


def test_few_draws_with_much_weight():
    """Draws of y go where the weight is: a thousand particles, of which one has nine tenths."""
    base = posterior("poisson")
    w = jnp.tile(jnp.asarray([[0.0], [np.log(20.0)]]), (1, 1000, 1, 1))
    log_weights = jnp.log(jnp.asarray([[0.9] + [0.1 / 999] * 999]))
    heavy = Draws(base.model, base.state, ONE, draws=px.Parameters({"w": w}, {}),
                  log_weights=log_weights)  # fmt: skip
    predictive = heavy.predict(X[:2])
    truth = stats.poisson(20)
    levels = np.array([0.05, 0.5, 0.95])
    found = predictive.quantile(levels)
    slack = 4.5 * np.sqrt(levels * (1 - levels) / 1000)[:, None]
    assert np.all(truth.cdf(found) > levels[:, None] - slack)
    assert np.all(truth.cdf(found - 1) < levels[:, None] + slack)
    # log p(y) of a Poisson of rate 20 has a deviation of about 0.7
    assert np.all(np.abs(predictive.parts("entropy").total - truth.entropy()) < 4.5 * 0.8 / 31)


def test_quantiles_far_out():
    """Weights in float32 sum to 1 less a few roundings: levels beyond that must not run away."""
    predictive = posterior_of(lk.Gaussian(0.3), 1, ONE, spread=1e-6).predict(X, samples=70, key=0)
    far = stats.norm.ppf(1 - 1e-6)
    np.testing.assert_allclose(
        (predictive.quantile(1 - 1e-6) - predictive.mean) / 0.3, far, atol=0.1
    )


class Silent(dist.Normal):
    """A distribution whose distribution function nobody wrote."""

    def cdf(self, value):
        raise NotImplementedError


def test_draws_stand_in_for_a_distribution_function():
    predictive = posterior_of(lk.From(lambda f: Silent(f, 0.3)), 1, ONE).predict(X, key=0)
    same = posterior_of(lk.Gaussian(0.3), 1, ONE).predict(X, key=0)
    y = np.zeros(11)
    assert np.all(np.abs(predictive.cdf(y) - same.cdf(y)) < 4 * 0.5 / np.sqrt(1000))


@pytest.mark.slow
def test_counts_have_whole_quantiles():
    quantiles = predict("poisson").quantile([0.05, 0.5, 0.95])
    np.testing.assert_array_equal(quantiles, np.round(quantiles))
    assert np.all(predict("poisson").cdf(quantiles[1]) > 0.5 - 4 * 0.5 / np.sqrt(1000))


# -- intervals


def test_shortest_interval_of_a_skewed_target():
    predictive = posterior_of(LOG_NORMAL, 1, ONE, spread=1e-6).predict(X, samples=2, key=0)
    low, high = predictive.interval(0.8, "highest")
    for row in (0, 10):
        truth = stats.lognorm(0.7, scale=np.exp(predictive.outputs()[0, row, 0]))
        best = optimize.minimize_scalar(
            lambda a, t=truth: t.ppf(a + 0.8) - t.ppf(a), bounds=(1e-9, 0.2), method="bounded"
        )
        assert high[row] - low[row] <= best.fun * (1 + 1e-3)
        np.testing.assert_allclose(truth.cdf(high[row]) - truth.cdf(low[row]), 0.8, atol=1e-4)
    central = predictive.interval(0.8)
    assert np.all(high - low < 0.95 * (central[1] - central[0]))


def test_shortest_is_central_where_all_is_symmetric():
    predictive = posterior_of(*KINDS["student"], spread=1e-6).predict(X, samples=2, key=0)
    central, shortest = predictive.interval(0.9), predictive.interval(0.9, "highest")
    np.testing.assert_allclose(shortest[0], central[0], atol=0.02)
    np.testing.assert_allclose(shortest[1], central[1], atol=0.02)


def test_shortest_interval_of_weighted_lines():
    """Most of the mass lies on two lines; the shortest interval leaves the third out."""
    low, high = weighted(np.log([0.55, 0.4, 0.05])).predict(X).interval(0.9, "highest")
    f = np.stack([X[:, 0], np.full(11, 2.0)])
    assert np.all((f.min(0) - 1 < low) & (low < f.min(0)))
    assert np.all((f.max(0) < high) & (high < f.max(0) + 1))


@pytest.mark.parametrize("name", ["categorical", "poisson"])
def test_shortest_interval_of_draws(name):
    predictive = predict(name, samples=40 if name == "categorical" else 6)
    low, high = predictive.interval(0.75, "highest")
    if name == "categorical":
        p = np.sort(special.softmax(predictive.outputs(), -1), axis=0)
        widths = p[29:] - p[:-29]  # 30 of 40
        close(high - low, widths.min(0))
    else:
        mass = predictive.cdf(high) - predictive.cdf(np.maximum(low - 1, 0)) * (low > 0)
        assert np.all(mass > 0.75 - 4 * 0.44 / np.sqrt(1000))
        central = predictive.interval(0.75)
        assert np.all(high - low <= central[1] - central[0])


# -- temperature


def test_own_bernoulli_has_two_classes_and_logits_do_not_underflow():
    own = posterior_of(lk.From(lambda f: dist.Bernoulli(logits=f), kind="classification"), 1, ONE)
    predictive, same = (p.predict(X, samples=6, key=0) for p in (own, posterior("bernoulli")))
    for part in ("mean", "total", "epistemic"):
        close(getattr(predictive, part), getattr(same, part))
    y = np.arange(11) % 2
    close(predictive.tempered(2.0).log_prob(y), same.tempered(2.0).log_prob(y))
    steep = lk.From(lambda f: dist.Categorical(logits=200 * f), kind="classification")
    predictive = posterior_of(steep, 3, Targets((), ())).predict(X, samples=2, key=0)
    p = special.softmax(2 * predictive.outputs().astype(float), -1).mean(0)
    np.testing.assert_allclose(predictive.tempered(100.0).mean, p, rtol=1e-3, atol=1e-6)


def test_outputs_of_one_event():
    """Independent outputs declared as one event are outputs all the same."""
    event = lk.From(lambda f: dist.Normal(f, 0.3).to_event(1))
    predictive = posterior_of(event, 2, TWO).predict(X, samples=6, key=0)
    diagonal = np.diagonal(predictive.covariance(), axis1=1, axis2=2)
    close(diagonal, predictive.variance)
    np.testing.assert_allclose(predictive.cdf(predictive.quantile(0.3)), 0.3, atol=1e-4)
    dirichlet = lk.From(lambda f: dist.Dirichlet(jnp.exp(f)))
    with pytest.raises(ValueError, match="covariance: Dirichlet does not tell its own"):
        posterior_of(dirichlet, 2, TWO).predict(X, samples=2, key=0).covariance()


@pytest.mark.parametrize("name", ["categorical", "bernoulli"])
def test_temperature(name):
    predictive = predict(name)
    f = predictive.outputs().astype(float) / 3.0
    if name == "bernoulli":
        f = np.concatenate([np.zeros_like(f), f], axis=-1)
    p = special.softmax(f, -1)
    cool = predictive.tempered(1.5).tempered(2.0)
    close(cool.mean, p.mean(0))
    close(cool.aleatoric, stats.entropy(p, axis=-1).mean(0))
    y = np.arange(11) % p.shape[-1]
    close(cool.log_prob(y), np.log(p.mean(0)[np.arange(11), y]))
    close(cool.log_likelihoods(y), np.log(p[:, np.arange(11), y]))
    share = (cool.sample(4000) == 1).mean(0)
    assert np.all(np.abs(share - p.mean(0)[:, 1]) < 4.5 * 0.5 / np.sqrt(4000))


# -- densities of every sample, groups of samples


def test_densities_of_samples_and_their_weights():
    predictive = weighted(np.log([0.7, 0.2, 0.1])).predict(X)
    y = np.zeros(11)
    close(predictive.weights, [0.7, 0.2, 0.1])
    each = predictive.log_likelihoods(y)
    assert each.shape == (3, 11)
    averaged = special.logsumexp(each, axis=0, b=predictive.weights[:, None])
    close(predictive.log_prob(y), averaged)
    moved = predictive.in_units(1.0, 2.0)
    close(moved.log_likelihoods(1 + 2 * y), each - np.log(2))


@pytest.mark.parametrize("name", ["gaussian", "categorical"])
def test_groups_of_samples_give_the_same_answer(name):
    x = np.linspace(-1, 1, 300, dtype="float32")[:, None]
    # room for some 20 inputs with all 64 samples: groups of a few samples take their place
    whole, groups = (
        posterior(name).predict(x, samples=64, key=0, block_bytes=b) for b in (2**26, 20 * 12 * 64)
    )
    assert len(groups._groups()) > 4
    for part in ("mean", "variance", "epistemic", "aleatoric", "total"):
        close(getattr(groups, part), getattr(whole, part))
    y = np.zeros(300)
    close(groups.log_prob(y), whole.log_prob(y))


# -- tables


def test_to_pandas():
    frame = predict("multivariate").to_pandas(names=["a", "b"])
    assert list(frame.columns[:3]) == ["mean_a", "std_a", "epistemic_a"]
    predictive = predict("categorical")
    frame = predictive.to_pandas(level=0.5, names=["dog", "wolf", "cat"], index=X[:, 0])
    np.testing.assert_array_equal(frame["p_wolf"], predictive.mean[:, 1])
    np.testing.assert_array_equal(frame["low_cat"], predictive.interval(0.5)[0][:, 2])
    assert frame["mode"].iloc[0] == ["dog", "wolf", "cat"][predictive.mode[0]]
    assert {"epistemic", "aleatoric", "total"} < set(frame.columns)
    with pytest.raises(ValueError, match="names must be 3 different ones"):
        predictive.to_pandas(names=["dog", "wolf", "wolf"])


def test_bad_input():
    classes, numbers = predict("categorical"), predict("gaussian")
    with pytest.raises(ValueError, match="by must be one of 'entropy', 'variance'"):
        classes.parts("deviation")
    with pytest.raises(ValueError, match="part must be"):
        numbers.covariance("all")
    with pytest.raises(ValueError, match=r"cdf is for regression and counts; log_prob\(y\)"):
        classes.cdf(np.zeros(11))
    with pytest.raises(ValueError, match="kind must be one of 'central', 'highest'"):
        numbers.interval(0.9, "hdi")
    with pytest.raises(ValueError, match="tempered is for classification"):
        numbers.tempered(2.0)
    for temperature in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="temperature must be finite and above 0"):
            classes.tempered(temperature)
    with pytest.raises(ValueError, match="y must have shape"):
        numbers.cdf(jnp.zeros((11, 2)))


# -- memory

MANY = """
import re
import numpy as np, posterax as px
x = np.random.default_rng(0).normal(size=(100_000, 16)).astype("float32")
model = px.Model(px.networks.MLP(16, 10, (8,), key=0), likelihood=px.likelihoods.Categorical())
predictive = px.prior_posterior(model, x).predict(x, samples=1000, key=0)
np.testing.assert_allclose(
    predictive.epistemic + predictive.aleatoric, predictive.total, rtol=1e-5
)
parts = predictive.parts("variance")
np.testing.assert_allclose(parts.epistemic + parts.aleatoric, parts.total, rtol=1e-5, atol=1e-6)
# not ru_maxrss: it is inherited, over fork and exec, from a test process that may be larger
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 2**20)
"""


@pytest.mark.slow
def test_a_thousand_samples_of_many_inputs_fit_in_two_gigabytes():
    found = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, check=True)
    assert float(found.stdout.split()[-1]) < 2
