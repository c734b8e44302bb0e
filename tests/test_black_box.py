"""Black-box VI: an unbiased gradient, less variance by every means, and the right optimum."""

import dataclasses
import runpy
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import posterax as px
from posterax._util.identity import identify
from posterax._util.special import inverse_softplus
from posterax.data import Stream
from posterax.gradients import gradient_moments
from posterax.infer.variational.score_function import Coefficient, sample_gradients, scores
from posterax.posteriors import Factorized, MeanFieldGaussian
from posterax.posteriors.factors import GaussianFactor
from tests.conjugate import conjugate
from tests.variational import phase_of

TRUTH = conjugate(seed=4)  # marginal deviations are 1.2 to 1.4 times those of mean-field q
PRECISION = np.linalg.inv(TRUTH.covariance)
OPTIMUM = TRUTH.mean, 1 / np.sqrt(np.diag(PRECISION))  # of mean-field q: μ and σ, exactly
GAUSSIAN = TRUTH.model()


def weights(values):
    return px.Parameters({"w": jnp.asarray(values, jnp.float32)}, {})


@pytest.fixture(scope="module")
def gaussian():
    """A function that makes q = N(μ, σ²) on the conjugate model."""
    start = px.fit(GAUSSIAN, TRUTH.data, px.BayesByBackprop(), steps=1)

    def make(mu, sigma):
        rho = weights(inverse_softplus(jnp.asarray(sigma)))
        return MeanFieldGaussian(start.model, start.state, start.targets, mu=weights(mu), rho=rho)

    return make


def exact_gradient(mu, sigma):
    """Of F / N = [½ (μ−m)ᵀ Λ (μ−m) + ½ Σ Λᵢᵢ σᵢ² − Σ log σᵢ] / N, for μ and for ρ."""
    for_sigma = np.diag(PRECISION) * sigma - 1 / sigma
    slope = 1 - np.exp(-sigma)  # dσ/dρ of σ = softplus(ρ)
    return PRECISION @ (mu - TRUTH.mean) / len(TRUTH.y), for_sigma * slope / len(TRUTH.y)


PURE = {"kl": "monte_carlo", "rao_blackwell": False, "baseline": None}
ESTIMATORS = {
    "plain": PURE,
    "rao_blackwell": PURE | {"rao_blackwell": True},
    "leave_one_out": PURE | {"baseline": "leave_one_out"},
    "control_variate": PURE | {"baseline": "control_variate"},
    "all": {"baseline": "leave_one_out"},
    "closed and control_variate": {"kl": "auto", "baseline": "control_variate"},
}


@pytest.fixture(scope="module")
def measured(gaussian):
    """Moments of every estimator's gradient with four samples, far from the optimum and there."""
    repeats = 3000
    places = {
        "far": (np.zeros(3), np.full(3, 0.3)),
        "optimum": OPTIMUM,
    }
    methods = {name: px.BlackBoxVI(samples=4, **how) for name, how in ESTIMATORS.items()}
    methods["reparameterized"] = px.BayesByBackprop(samples=4)
    found = {
        (place, name): gradient_moments(
            GAUSSIAN, TRUTH.data, method, gaussian(*q), repeats=repeats, key=1
        )
        for place, q in places.items()
        for name, method in methods.items()
    }
    return places, found, repeats


def test_every_estimator_has_the_gradient_as_its_mean(measured):
    """Six components, seven estimators, two places: 84 z values below 4.5, for 0.001 in all."""
    places, found, repeats = measured
    for (place, name), moments in found.items():
        for part, wanted in zip(("mu", "rho"), exact_gradient(*places[place]), strict=True):
            error = np.sqrt(moments.variance[part].network["w"] / repeats)
            z = (moments.mean[part].network["w"] - wanted) / error
            assert np.all(np.abs(z) < 4.5), (place, name, part, z)


def test_the_control_variate_knows_nothing_of_its_own_samples():
    """Its coefficient is what earlier steps say, here 2, whatever the samples are."""
    rng = np.random.default_rng(0)
    w, signal = rng.normal(size=(2, 5, 3)).astype("float32")
    v = {"mu": np.zeros(3, "float32"), "rho": np.zeros(3, "float32")}
    before = Coefficient({name: np.full(3, 2.0) for name in v}, {name: np.ones(3) for name in v})

    @jax.jit
    def both(v, w, signal, before):
        factor = GaussianFactor()
        found, after = sample_gradients(factor, v, w, signal, "control_variate", before)
        return found, after, scores(factor, v, w, signal - 2)

    found, after, wanted = both(v, w, signal, before)
    for name in v:
        np.testing.assert_allclose(found[name], wanted[name], rtol=1e-4, atol=1e-5)
        assert not np.any(after.product[name] / after.square[name] == 2)


def test_variance_falls_by_every_means_and_most_by_reparameterization(measured):
    """A variance of 3000 repeats is known to a few per cent; the smallest gap here is larger."""
    places, found, _ = measured
    for place in places:
        variance = {name: found[place, name].average for name in [*ESTIMATORS, "reparameterized"]}
        assert variance["rao_blackwell"] < variance["plain"]
        assert variance["leave_one_out"] < 0.5 * variance["plain"]
        assert variance["control_variate"] < 0.5 * variance["plain"]
        assert variance["reparameterized"] < 0.8 * min(variance[name] for name in ESTIMATORS)


def test_variance_falls_with_samples_and_the_history_tells_it(gaussian, measured):
    _, found, _ = measured
    where = gaussian(np.zeros(3), np.full(3, 0.3))
    method = px.BlackBoxVI(samples=16, **ESTIMATORS["leave_one_out"])
    more = gradient_moments(GAUSSIAN, TRUTH.data, method, where, repeats=4000, key=2).average
    # 4 times the samples; and a baseline of S − 1 others adds a variance of 1 / (S − 1) of f's
    wanted = 4 * (1 + 1 / 3) / (1 + 1 / 15)
    assert found["far", "leave_one_out"].average / more == pytest.approx(wanted, rel=0.1)
    # a fit that does not move sees that variance, as each step's samples estimate it
    still = dataclasses.replace(method, optimizer=optax.sgd(0.0))
    told = px.fit(GAUSSIAN, TRUTH.data, still, steps=2000, init=where, key=3).history
    assert set(told) == {"nll", "kl", "gradient_variance"}
    assert told["gradient_variance"].shape == (2000,)
    assert told["gradient_variance"].mean() == pytest.approx(more, rel=0.1)


def test_the_history_knows_that_samples_share_their_baselines(gaussian):
    """Far from the optimum with few samples their spread alone is too small, by F²/(S − 1)²."""
    samples, where = 2, gaussian(np.full(3, 3.0), np.full(3, 0.3))
    method = px.BlackBoxVI(samples=samples, optimizer=optax.sgd(0.0))
    true = gradient_moments(GAUSSIAN, TRUTH.data, method, where, repeats=20_000, key=1)
    told = px.fit(GAUSSIAN, TRUTH.data, method, steps=20_000, init=where, key=2).history
    shared = np.mean(np.square(flat(true.mean))) / (samples - 1) ** 2
    assert shared > 0.1 * true.average  # it is seen
    assert told["gradient_variance"].mean() == pytest.approx(true.average, rel=0.05)


def test_gradients_of_a_list_and_of_the_first_step_of_a_warmup(gaussian):
    """300 rows are three minibatches of a fit, one here; every step is the first of ten epochs."""
    x, y = (np.tile(a, (15, *[1] * (a.ndim - 1))) for a in TRUTH.data)
    where = gaussian(np.zeros(3), np.full(3, 0.3))

    def mean(data, **options):
        method = px.BayesByBackprop(**options)
        return flat(gradient_moments(GAUSSIAN, data, method, where, repeats=50).mean)

    np.testing.assert_array_equal(mean([x, y]), mean((x, y)))
    np.testing.assert_allclose(
        mean((x, y), kl_warmup=10.0), mean((x, y), temperature=0.1), rtol=1e-4, atol=1e-6
    )
    with pytest.raises(TypeError, match=r"data must be \(x, y\) or \(x, y, weight\)"):
        mean(Stream([(x, y)]))


def fits(method, model, data, count, **options):
    """The same fit with other keys: their spread is its Monte Carlo error."""
    return [px.fit(model, data, method, key=key, **options) for key in range(count)]


def agree(errors, largest):
    """Student's t of the fits' mean errors, 0.001 for all; and the standard errors are small."""
    error = np.std(errors, 0, ddof=1) / np.sqrt(len(errors))
    assert np.all(error < largest), error
    t = np.mean(errors, 0) / error
    assert np.all(np.abs(t) < stats.t(len(errors) - 1).ppf(1 - 0.0005 / t.size)), t


def off_optimum(posterior, deviations=OPTIMUM[1]):
    """Errors of mean and deviation, in deviations."""
    mu, sigma = (np.asarray(part.network["w"], np.float64) for part in posterior.moments())
    return (mu - OPTIMUM[0]) / deviations, sigma / deviations - 1


@pytest.mark.parametrize(
    "method",
    [
        px.BlackBoxVI(samples=8, learning_rate=0.02),
        px.BlackBoxVI(samples=8, learning_rate=0.02, baseline="control_variate", kl="auto"),
        px.BayesByBackprop(samples=8, learning_rate=0.02),
    ],
    ids=["leave one out", "control variate", "Bayes by Backprop"],
)
def test_both_methods_converge_to_the_mean_field_optimum(method):
    found = fits(method, GAUSSIAN, TRUTH.data, 8, steps=6000)
    assert all(isinstance(posterior, MeanFieldGaussian) for posterior in found)
    agree([off_optimum(posterior) for posterior in found], 0.05)


@pytest.mark.slow
def test_minibatches_and_weights_have_the_same_optimum():
    """Every example counts twice, in minibatches: as if the noise were smaller by √2."""
    precision = np.eye(3) + 2 * (PRECISION - np.eye(3))
    mean = np.linalg.solve(precision, 2 * PRECISION @ TRUTH.mean)
    sigma = 1 / np.sqrt(np.diag(precision))
    method = px.BlackBoxVI(samples=8, learning_rate=0.02, kl_weights="blundell")
    data = (*TRUTH.data, np.full(20, 2.0))
    errors = []
    for posterior in fits(method, GAUSSIAN, data, 8, steps=6000, batch_size=8):
        mu, found = (np.asarray(part.network["w"]) for part in posterior.moments())
        errors.append([(mu - mean) / sigma, found / sigma - 1])
    agree(errors, 0.05)


# -- families without reparameterization


class LaplaceFamily:
    """q = Laplace(loc, b). Against a Gaussian of deviation s the best b is s / √2."""

    def init(self, prior, w):
        return {"loc": w, "log_b": jnp.full_like(w, -2.0)}

    def sample(self, key, v):
        return v["loc"] + jnp.exp(v["log_b"]) * jax.random.laplace(key, v["loc"].shape)

    def log_prob(self, v, w):
        b = jnp.exp(v["log_b"])
        return -jnp.abs(w - v["loc"]) / b - jnp.log(2 * b)


def test_a_family_of_ones_own(tmp_path):
    method = px.BlackBoxVI(LaplaceFamily(), samples=8, learning_rate=0.02)
    found = fits(method, GAUSSIAN, TRUTH.data, 8, steps=6000)
    own = [posterior.variational["own"].network["w"] for posterior in found]
    agree(
        [
            [(v["loc"] - OPTIMUM[0]) / OPTIMUM[1], np.exp(v["log_b"]) / OPTIMUM[1] * 2**0.5 - 1]
            for v in own
        ],
        0.05,
    )
    posterior = found[0]
    mean, std = posterior.moments()  # of 4096 draws: a deviation is 1 / 64
    b = np.exp(own[0]["log_b"])
    assert np.all(np.abs(mean.network["w"] - own[0]["loc"]) < 4.5 * 2**0.5 * b / 64)
    np.testing.assert_allclose(std.network["w"], 2**0.5 * b, rtol=0.1)
    w = weights([0.1, 0.2, 0.3])
    wanted = jnp.sum(LaplaceFamily().log_prob(own[0], w.network["w"]))
    assert posterior.log_prob(w) == pytest.approx(float(wanted), rel=1e-5)
    assert posterior.predict(TRUTH.x, key=0).mean.shape == (20,)
    with pytest.raises(ValueError, match=r"save: the family LaplaceFamily is code of your own"):
        posterior.save(tmp_path / "own.px")
    # it goes on from itself, and under a checkpoint
    again = px.fit(GAUSSIAN, TRUTH.data, method, init=posterior, steps=1, checkpoint=tmp_path / "c")
    assert np.all(np.abs(again.variational["own"].network["w"]["loc"] - own[0]["loc"]) < 0.03)


@dataclasses.dataclass(frozen=True)
class Tilted(LaplaceFamily):
    """With a setting, and ``parts`` numbers more for each weight."""

    setting: float = 1.0
    parts: int = 1

    def init(self, prior, w):
        return super().init(prior, w) | {"more": jnp.zeros((self.parts, *w.shape))}


class Silent(LaplaceFamily):
    """Shows nothing of itself but an address."""

    def __init__(self, setting):
        self.setting = setting


def test_a_checkpoint_knows_the_settings_of_a_family():
    for family in (Tilted, Silent):
        three, again, more = (identify(px.BlackBoxVI(family(n))) for n in (3.0, 3.0, 300.0))
        assert three == again != more


def test_a_family_starts_from_what_fits_it_and_else_from_the_means():
    network = {"a": jnp.ones((2, 1)), "b": jnp.ones(1)}, lambda p, x: x @ p["a"] + p["b"]
    prior, likelihood = px.priors.Gaussian(1.0), px.likelihoods.Gaussian(1.0)

    def start(family, where=None, posterior=None):
        model = px.Model(network, prior, likelihood, where=where)
        return phase_of(px.BlackBoxVI(family), model, posterior=posterior)

    def own(state):
        return state.variational["own"].network["a"]

    phase, state = start(Tilted())
    moved = state._replace(variational=jax.tree.map(lambda a: a + 0.5, state.variational))
    before = phase.finish(moved, None)
    jax.tree.map(
        np.testing.assert_array_equal, own(start(Tilted(5.0), None, before)[1]), own(moved)
    )
    means = before.moments()[0].network["a"]
    for other in ((Tilted(parts=2),), (Tilted(), "a")):
        _, after = start(*other, posterior=before)
        np.testing.assert_allclose(own(after)["loc"], means, rtol=1e-5)
        assert np.all(own(after)["log_b"] == -2.0)


# -- weights on a grid


BITS = px.priors.Grid([-1.0, 1.0], [0.4, 0.6])
TERNARY = px.priors.Grid([-0.5, 0.0, 1.0])


def line(p, x):
    return x[:, :3] @ p["bits"] + x[:, 3:] @ p["ternary"]


@pytest.fixture(scope="module")
def factorising():
    """Orthogonal columns: the likelihood is a product over weights, and so is the posterior."""
    rng = np.random.default_rng(3)
    x = np.linalg.qr(rng.normal(size=(12, 5)))[0].astype("float32")
    y = x @ np.array([0.7, -0.3, 0.2, 0.4, -0.2], "float32")
    network = {"bits": jnp.zeros((3, 1)), "ternary": jnp.zeros((2, 1))}, line
    prior = px.priors.ByPart({"bits": BITS}, default=TERNARY)
    model = px.Model(network, prior, px.likelihoods.Gaussian(0.8))
    return model, (x, y.astype("float32")), px.fit(model, (x, y), px.Enumeration())


def small_network(p, x):
    w = p["w"]
    return jnp.tanh(x @ w[:4].reshape(2, 2) + w[4:6]) @ w[6:, None]


def flat(tree):
    return np.concatenate([np.ravel(a) for a in jax.tree.leaves(tree)])


def test_bernoulli_and_categorical_marginals_are_those_of_enumeration(factorising):
    model, data, exact = factorising
    wanted = flat(exact.marginals())
    assert 0.05 < wanted.min() < wanted.max() < 0.95  # no weight is certain
    method = px.BlackBoxVI(samples=8, learning_rate=0.05, baseline="control_variate", kl="auto")
    found = fits(method, model, data, 8, steps=3000)
    agree([flat(posterior.marginals()) - wanted for posterior in found], 0.01)
    # here q can be the posterior, f is then the same everywhere, and a baseline leaves no variance
    method = px.BlackBoxVI(samples=8, learning_rate=0.05, rao_blackwell=False)
    whole = px.fit(model, data, method, steps=4000, key=0)
    np.testing.assert_allclose(flat(whole.marginals()), wanted, atol=1e-4)
    assert whole.history["gradient_variance"][-1] < 1e-6 * whole.history["gradient_variance"][0]

    # what the posterior says of itself
    for one, two in zip(whole.moments(), exact.moments(), strict=True):
        np.testing.assert_allclose(flat(one), flat(two), atol=1e-3)
    states = jax.jit(jax.vmap(exact.parameters))(jnp.arange(2**3 * 3**2))
    log_prob = jax.jit(jax.vmap(whole.log_prob))
    np.testing.assert_allclose(log_prob(states), exact.log_probs, atol=2e-3)
    assert np.all(log_prob(jax.tree.map(lambda w: w + 0.1, states)) == -np.inf)
    drawn = flat(whole.sample(0, 4000).network["bits"]).reshape(4000, 3) > 0
    up = np.asarray(whole.marginals().network["bits"])[:, 0, 1]
    assert np.all(np.abs(drawn.mean(0) - up) < 4.5 * np.sqrt(up * (1 - up) / 4000))
    still = dataclasses.replace(method, learning_rate=1e-9)
    again = px.fit(model, data, still, steps=1, init=whole).marginals()
    np.testing.assert_allclose(flat(again), flat(whole.marginals()), atol=1e-6)  # it starts there
    certain = jax.tree.map(lambda a: jnp.full_like(a, 200.0), whole.variational["logits"])
    sure = dataclasses.replace(whole, variational=whole.variational | {"logits": certain})
    assert flat(sure.marginals()).min() == 0
    again = px.fit(model, data, still, steps=1, init=sure).marginals()
    np.testing.assert_allclose(flat(again), flat(sure.marginals()), atol=1e-4)
    assert flat(again).min() > 0
    with pytest.raises(ValueError, match="Factorized: weights on a grid are not Gaussian"):
        whole.as_prior()


def test_evidence_is_bound_plus_divergence_and_no_factor_can_do_better():
    """On a posterior that does not factorise, all by sums over its 256 states."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 2)).astype("float32")
    y = np.tanh(x[:, 0] - x[:, 1]) + 0.3
    network = {"w": jnp.zeros(8)}, small_network
    model = px.Model(network, px.priors.Grid([-1.0, 1.0]), px.likelihoods.Gaussian(0.7))
    exact = px.fit(model, (x, y), px.Enumeration())
    method = px.BlackBoxVI(samples=16, learning_rate=0.05)
    posterior = px.fit(model, (x, y), method, steps=4000, key=0)

    states = jax.jit(jax.vmap(exact.parameters))(jnp.arange(256))
    bits = np.asarray(states.network["w"]) > 0
    log_q = np.asarray(jax.jit(jax.vmap(posterior.log_prob))(states), np.float64)
    log_joint = jax.jit(jax.vmap(lambda p: model.log_joint(p, x, y[:, None])))(states)
    log_joint, log_post = np.asarray(log_joint, np.float64), np.asarray(exact.log_probs)
    down, up = np.asarray(posterior.marginals().network["w"], np.float64).T
    np.testing.assert_allclose(log_q, np.log(np.where(bits, up, down)).sum(1), atol=1e-4)

    def bound(log_q):
        return np.sum(np.exp(log_q) * (log_joint - log_q))

    elbo, divergence = bound(log_q), np.sum(np.exp(log_q) * (log_q - log_post))
    assert divergence > 0.1  # it does not factorise
    assert elbo + divergence == pytest.approx(exact.log_evidence.value, abs=1e-4)
    # coordinate ascent, exact, from here: every factor is at its best already, up to the noise
    best = up.copy()
    for _ in range(200):
        for i in range(8):
            others = np.where(bits, best, 1 - best)
            others[:, i] = 1
            mass = others.prod(1)
            gap = mass[bits[:, i]] @ log_joint[bits[:, i]]
            gap -= mass[~bits[:, i]] @ log_joint[~bits[:, i]]
            best[i] = 1 / (1 + np.exp(-gap))
    reached = bound(np.log(np.where(bits, best, 1 - best)).sum(1))
    assert 0 <= reached - elbo < 0.01
    # the history's bound is this one, from samples: (nll + kl) N
    told = (posterior.history["nll"] + posterior.history["kl"])[-500:] * 6.0
    assert -told.mean() == pytest.approx(elbo, abs=float(4.5 * told.std() / 500**0.5))


@pytest.mark.usefixtures("hasty_compiler")
def test_grids_noise_and_points_in_one_model(tmp_path):
    """Categorical, Gaussian and point factors side by side: fitted, saved and loaded."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(64, 2)).astype("float32")
    y = (x[:, 0] - x[:, 1] + 2.0 + 0.2 * rng.normal(size=64)).astype("float32")
    network = px.networks.MLP(2, 1, (), key=0)
    model = px.Model(
        network, BITS, px.likelihoods.Gaussian(noise="learned", initial=1.0), where="*.weight"
    )
    method = px.BlackBoxVI(samples=8, learning_rate=0.05)
    posterior = px.fit(model, (x, y), method, steps=1500, batch_size=16, key=0)
    assert isinstance(posterior, Factorized)
    mean, std = posterior.moments()
    np.testing.assert_allclose(mean.network.layers[0].weight, [[1.0, -1.0]], atol=0.01)
    # the offset is a point: the mean of what the signs leave, by its standard error
    offset = float(mean.network.layers[0].bias[0])
    assert offset == pytest.approx(np.mean(y - x[:, 0] + x[:, 1]), abs=0.2 / 8)
    assert float(std.network.layers[0].bias[0]) == 0
    assert flat(std.likelihood).min() > 0
    posterior.save(tmp_path / "mixed.px")
    loaded = px.load(tmp_path / "mixed.px")
    np.testing.assert_array_equal(loaded.predict(x, key=1).mean, posterior.predict(x, key=1).mean)
    np.testing.assert_array_equal(flat(loaded.marginals()), flat(posterior.marginals()))


@pytest.mark.slow
def test_the_gallery_draws(tmp_path, monkeypatch):
    script = str(Path(__file__).parents[1] / "docs" / "gallery" / "gradients.py")
    monkeypatch.setattr(sys, "argv", [script, "--quick", "--out", str(tmp_path / "picture.png")])
    runpy.run_path(script, run_name="__main__")
    assert 30_000 < (tmp_path / "picture.png").stat().st_size < 300_000


# -- errors


def tiny_fit(method, prior=BITS):
    network = {"w": jnp.ones((2, 1))}, lambda p, x: x @ p["w"]
    model = px.Model(network, prior, px.likelihoods.Gaussian(1.0))
    return px.fit(model, (np.ones((4, 2)), np.ones(4)), method, steps=2)


@dataclasses.dataclass
class Thawed(LaplaceFamily):
    """Not frozen, and so without a hash."""

    setting: float = 1.0


class Wrong(LaplaceFamily):
    """One thing of it is not as it should be."""

    def __init__(self, **wrong):
        self.__dict__ |= wrong


def own(**wrong):
    return px.fit(GAUSSIAN, TRUTH.data, px.BlackBoxVI(Wrong(**wrong)), steps=1)


BAD = {
    "reparameterized": (
        lambda: tiny_fit(px.BayesByBackprop()),
        r"BayesByBackprop needs a density, and the prior of network\.w is a px\.priors\.Grid.*"
        r"use px\.BlackBoxVI, px\.Enumeration, px\.ImportanceSampling or px\.Metropolis",
    ),
    "family": (lambda: px.BlackBoxVI("gaussian"), "family must be 'auto' or an object with init"),
    "class": (lambda: px.BlackBoxVI(LaplaceFamily), "family must be 'auto' or an object with init"),
    "hash": (
        lambda: px.BlackBoxVI(Thawed()), r"hashable: write @dataclass\(frozen=True\)",
    ),
    "baseline": (lambda: px.BlackBoxVI(baseline="mean"), "baseline must be one of 'leave_one_out'"),
    "one sample": (lambda: px.BlackBoxVI(samples=1), "2 or more, got 1.*leave-one-out baseline"),
    "one sample, none": (lambda: px.BlackBoxVI(samples=1, baseline=None), "samples must be 2 or"),
    "no sample": (lambda: px.BlackBoxVI(samples=0), "samples must be a whole number"),
    "kl": (lambda: px.BlackBoxVI(kl="exact"), "kl must be one of 'auto', 'monte_carlo'"),
    "rho": (lambda: px.BlackBoxVI(initial_rho="prior"), "initial_rho must be a finite number"),
    "temperature": (lambda: px.BlackBoxVI(temperature=-1.0), "temperature must be 0 or more"),
    "draws": (lambda: own(sample=lambda key, v: jnp.zeros(2)), r"network\.w has shape \(2,\), not"),
    "sum": (
        lambda: own(log_prob=lambda v, w: jnp.sum(w)),
        r"log_prob of network\.w has shape \(\), not \(3,\): it is the log density of each",
    ),
    "nothing": (lambda: own(init=lambda prior, w: {}), "no variational parameters for network.w"),
    "no prior": (
        lambda: tiny_fit(px.BlackBoxVI(), px.priors.Flat()),
        "BlackBoxVI needs weights with a prior",
    ),
    "beside the grid": (
        lambda: tiny_fit(px.BlackBoxVI(LaplaceFamily())), "no draws where the prior has no density",
    ),
    "gradients": (
        lambda: gradient_moments(GAUSSIAN, TRUTH.data, px.NUTS(), None), "NUTS has no optimizer",
    ),
}  # fmt: skip


@pytest.mark.usefixtures("hasty_compiler")
@pytest.mark.parametrize("case", BAD)
def test_errors(case):
    call, message = BAD[case]
    with pytest.raises((ValueError, TypeError, px.NonFiniteError), match=message):
        call()
