"""Likelihoods of amounts, counts and shares: against scipy, at extremes, in fits and in files."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

import posterax as px
from posterax import likelihoods as lk
from posterax.likelihoods.links import bent, scaled_softplus
from posterax.likelihoods.positive import HurdleLogNormal
from posterax.likelihoods.shares import SQUEEZE

pytestmark = pytest.mark.usefixtures("hasty_compiler")

RNG = np.random.default_rng(0)
F = {k: RNG.normal(size=(6, k)).astype("float32") for k in (1, 2, 3, 4, 6)}
AMOUNTS = RNG.lognormal(size=(6, 2)).astype("float32")
COUNTS = np.array([[0, 3], [1, 40], [7, 0], [2, 2], [300, 1], [5, 9]], "float32")
SHARES = RNG.beta(1, 2, size=(6, 2)).astype("float32")
ZEROS = AMOUNTS * np.array([[0, 1], [1, 0], [0, 0], [1, 1], [1, 1], [0, 1]], "float32")
LIKELIHOODS = {
    "log-normal": lk.LogNormal(),
    "negative binomial": lk.NegativeBinomial(),
    "beta": lk.Beta(),
    "zero inflated": lk.ZeroInflatedLogNormal(),
}
EACH = {"log-normal": 2, "negative binomial": 2, "beta": 2, "zero inflated": 3}
TARGETS = {
    "log-normal": AMOUNTS, "negative binomial": COUNTS, "beta": SHARES, "zero inflated": ZEROS,
}  # fmt: skip


def rows(log_prob):
    return np.asarray(log_prob).reshape(len(log_prob), -1).sum(-1)


def softplus(raw):
    return np.log1p(np.exp(np.asarray(raw, float)))


def scipy_beta(f, phi):
    mean = special.expit(np.asarray(f, float))
    return stats.beta(mean * phi, (1 - mean) * phi)


def scipy_counts(f, alpha):
    r, mean = 1 / np.asarray(alpha, float), np.exp(np.asarray(f, float))
    return stats.nbinom(r, r / (r + mean))


def scipy_hurdle(y, zero, f, noise):
    above = np.where(y > 0, y, 1)
    log_p = stats.lognorm(noise, scale=np.exp(f)).logpdf(above) + special.log_expit(-zero)
    return np.where(y > 0, log_p, special.log_expit(zero))


OWN = {"log_noise": jnp.array([-0.5, 0.3])}
CASES = {
    "log-normal": (
        lk.LogNormal(0.4), F[2], AMOUNTS, {},
        stats.lognorm(0.4, scale=np.exp(F[2])).logpdf(AMOUNTS),
    ),
    "log-normal, predicted": (
        lk.LogNormal(), F[4], AMOUNTS, {},
        stats.lognorm(softplus(F[4][:, 2:]) + 1e-4, scale=np.exp(F[4][:, :2])).logpdf(AMOUNTS),
    ),
    "log-normal, learned, centred": (
        lk.LogNormal("learned", centre=[1.0, -2.0]), F[2], AMOUNTS, OWN,
        stats.lognorm(np.exp([-0.5, 0.3]), scale=np.exp(F[2] + [1.0, -2.0])).logpdf(AMOUNTS),
    ),
    "negative binomial": (
        lk.NegativeBinomial(0.5, centre=1.0), F[2], COUNTS, {},
        scipy_counts(F[2] + 1, 0.5).logpmf(COUNTS),
    ),
    "negative binomial, predicted": (
        lk.NegativeBinomial(), F[4], COUNTS, {},
        scipy_counts(F[4][:, :2], softplus(F[4][:, 2:]) + 1e-4).logpmf(COUNTS),
    ),
    "negative binomial, learned": (
        lk.NegativeBinomial("learned"), F[2], COUNTS, {"log_dispersion": jnp.array([-0.5, 0.3])},
        scipy_counts(F[2], np.exp([-0.5, 0.3])).logpmf(COUNTS),
    ),
    "beta": (lk.Beta([3.0, 50.0]), F[2], SHARES, {}, scipy_beta(F[2], [3.0, 50.0]).logpdf(SHARES)),
    "beta, predicted": (
        lk.Beta(), F[4], SHARES, {},
        scipy_beta(F[4][:, :2], np.exp(F[4][:, 2:].astype(float))).logpdf(SHARES),
    ),
    "beta, learned": (
        lk.Beta("learned", centre=0.5), F[2], SHARES, {"log_precision": jnp.array([1.0, 2.0])},
        scipy_beta(F[2] + 0.5, np.exp([1.0, 2.0])).logpdf(SHARES),
    ),
    "zero inflated": (
        lk.ZeroInflatedLogNormal(0.4), F[4], ZEROS, {},
        scipy_hurdle(ZEROS, F[4][:, 2:], F[4][:, :2], 0.4),
    ),
    "zero inflated, predicted": (
        lk.ZeroInflatedLogNormal(centre=0.5), F[6], ZEROS, {},
        scipy_hurdle(ZEROS, F[6][:, 4:], F[6][:, :2] + 0.5, softplus(F[6][:, 2:4]) + 1e-4),
    ),
    "zero inflated, learned": (
        lk.ZeroInflatedLogNormal("learned"), F[4], ZEROS, OWN,
        scipy_hurdle(ZEROS, F[4][:, 2:], F[4][:, :2], np.exp([-0.5, 0.3])),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_log_density_is_scipys(name):
    likelihood, outputs, y, own, expected = CASES[name]
    assert likelihood.check(outputs.shape, y) == (2,)
    assert likelihood.outputs_for((2,)) == outputs.shape[1:]
    assert likelihood.target_for(outputs.shape[1:]) == (2,)
    found = likelihood.log_prob(jnp.asarray(outputs), jnp.asarray(y), own, None)
    np.testing.assert_allclose(found, rows(expected), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_a_column_of_targets_is_the_vector(name):
    likelihood, k = LIKELIHOODS[name], EACH[name]
    y = TARGETS[name][:, 0]
    outputs = F[k]
    assert likelihood.check(outputs.shape, y) == (1,)
    assert likelihood.check(outputs.shape, y[:, None]) == (1,)
    with pytest.raises(ValueError, match=f"needs an output of shape \\(6, {k}\\)"):
        likelihood.check((6, k + 1), y)


def test_poisson_is_the_limit():
    y = np.arange(200.0)[:, None]
    for mean in (0.1, 3.0, 50.0):
        outputs = jnp.full((200, 1), np.log(mean), jnp.float32)
        found = lk.NegativeBinomial(1e-4).log_prob(outputs, jnp.asarray(y, jnp.float32), {}, None)
        expected = stats.poisson(mean).logpmf(y[:, 0])
        near = expected > -15
        np.testing.assert_allclose(found[near], expected[near], rtol=5e-3, atol=5e-3)


# -- moments, distribution functions, draws

POINTS = [(-3.0, -2.0, -2.0), (0.0, 0.5, 0.5), (1.0, 2.0, -1.0), (2.0, -1.0, 3.0), (4.0, 1.0, 0.0)]


def distributions(name):
    outputs = jnp.asarray([point[: EACH[name]] for point in POINTS], jnp.float32)
    return LIKELIHOODS[name].distribution(outputs, {})


def references(name):
    f, raw = np.array(POINTS).T[:2, :, None]
    return {
        "log-normal": lambda: stats.lognorm(softplus(raw) + 1e-4, scale=np.exp(f)),
        "negative binomial": lambda: scipy_counts(f, softplus(raw) + 1e-4),
        "beta": lambda: scipy_beta(f, np.exp(raw)),
    }[name]()


@pytest.mark.parametrize("name", [name for name in LIKELIHOODS if name != "zero inflated"])
def test_moments_and_distribution_function_are_scipys(name):
    made, reference = distributions(name), references(name)
    np.testing.assert_allclose(made.mean, reference.mean(), rtol=1e-4)
    np.testing.assert_allclose(made.variance, reference.var(), rtol=2e-3)
    for level in (0.01, 0.2, 0.5, 0.9, 0.999):
        y = np.maximum(reference.ppf(level), 0 if "binomial" in name else 1e-6).astype("float32")
        np.testing.assert_allclose(made.cdf(jnp.asarray(y)), reference.cdf(y), atol=2e-5)


def test_the_hurdle_agrees_with_quadrature():
    made = distributions("zero inflated")
    likelihood = LIKELIHOODS["zero inflated"]
    for i, point in enumerate(POINTS):
        f, noise, p = point[0], softplus(point[1]) + 1e-4, special.expit(point[2])
        t = f + noise * np.linspace(-9, 9 + 4 * noise, 4001)
        outputs = jnp.broadcast_to(jnp.asarray(point, jnp.float32), (len(t), 3))
        above = jnp.exp(jnp.asarray(t, jnp.float32))[:, None]
        p_t = np.exp(rows(likelihood.log_prob(outputs, above, {}, None)) + t)
        mass, first, second = (integrate.simpson(p_t * np.exp(k * t), x=t) for k in range(3))
        assert mass == pytest.approx(1 - p, rel=1e-3)
        assert made.mean[i, 0] == pytest.approx(first, rel=1e-3)
        assert made.variance[i, 0] == pytest.approx(second - first**2, rel=3e-3)
        for z in (-1.0, 0.0, 2.0):
            inside = t <= f + z * noise
            expected = p + integrate.simpson(p_t[inside], x=t[inside])
            found = made.cdf(jnp.exp(jnp.float32(f + z * noise)))[i, 0]
            assert found == pytest.approx(expected, abs=3e-3)
        assert made.cdf(jnp.zeros(()))[i, 0] == pytest.approx(p, rel=1e-5)
        at_zero = made.log_prob(jnp.zeros(()))[i, 0]
        assert at_zero == pytest.approx(np.log(p), rel=1e-4)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_draws_have_the_moments(name):
    outputs = jnp.asarray([[0.3, -1.0, -0.5][: EACH[name]], [1.0, 0.0, 1.0][: EACH[name]]])
    made = LIKELIHOODS[name].distribution(outputs, {})
    drawn = np.asarray(made.sample(jax.random.key(0), (40_000,)), float)
    assert drawn.shape == (40_000, 2, 1)
    np.testing.assert_allclose(drawn.mean(0), made.mean, rtol=0.03)
    np.testing.assert_allclose(drawn.var(0), made.variance, rtol=0.25)
    for y in (0.0, 1.0, 2.0):
        y = y / 3 if name == "beta" else y
        if y > 0 or name in ("negative binomial", "zero inflated"):
            share = made.cdf(jnp.full((2, 1), y, jnp.float32))
            np.testing.assert_allclose((drawn <= y).mean(0), share, atol=0.01)


# -- extremes


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("size", [50.0, 1e4])
def test_extreme_outputs_have_finite_gradients_and_moments(name, size):
    likelihood, k = LIKELIHOODS[name], EACH[name]
    corners = np.array(np.meshgrid(*[[-size, 0.0, size]] * k)).reshape(k, -1).T
    outputs = jnp.asarray(corners, jnp.float32)
    extremes = {"beta": [0.0, 0.3, 1.0], "negative binomial": [0.0, 1.0, 1e5]}
    for y in extremes.get(name, [1e-6, 1.0, 1e6] + [0.0] * (name == "zero inflated")):
        targets = jnp.full((len(corners), 1), y, jnp.float32)
        total = lambda f: likelihood.log_prob(f, targets, {}, None).sum()  # noqa: B023, E731
        value, slope = jax.value_and_grad(total)(outputs)
        assert np.isfinite(value)
        assert np.isfinite(slope).all()
    made = likelihood.distribution(outputs, {})
    for moment in (made.mean, made.variance, made.sample(jax.random.key(0))):
        assert np.isfinite(moment).all()
        assert (np.asarray(moment) >= 0).all()


def test_a_mean_does_not_run_away():
    far = jnp.asarray([[60.0, 50.0]])
    assert lk.LogNormal().distribution(far, {}).mean < np.exp(20 + 1 + 8)
    assert lk.LogNormal(reach=3.0).distribution(far, {}).mean < np.exp(3 + 1 + 8)
    assert lk.LogNormal(0.1, reach=3.0).distribution(far[:, :1], {}).mean < np.exp(4.1)
    assert lk.NegativeBinomial(reach=(9.0, 2.0)).distribution(far, {}).mean < np.exp(3)
    assert lk.NegativeBinomial(reach=(9.0, 2.0)).distribution(-far, {}).mean > np.exp(-10)


def test_bent_is_monotone_and_has_no_jumps():
    f = jnp.linspace(-30, 30, 2001)
    value, slope = jax.vmap(jax.value_and_grad(lambda f: bent(f, -2.0, 3.0)))(f)
    inside = (f > -2) & (f < 3)
    np.testing.assert_array_equal(value[inside], f[inside])
    assert value.min() > -3
    assert value.max() < 4
    assert ((slope > 0) & (slope <= 1)).all()
    assert np.abs(np.diff(slope)).max() < 0.07


def test_small_noise_keeps_its_variance():
    made = lk.LogNormal(1e-4).distribution(jnp.zeros((1, 1)), {})
    assert made.variance == pytest.approx(1e-8, rel=1e-4)


# -- wider noise


@pytest.mark.parametrize("raw", [-80.0, -16.0, -14.9, -3.0, 0.0, 5.0, 50.0])
def test_scaled_softplus(raw):
    for factor in (0.1, 0.9, 1.0, 1.5, 20.0):
        found = float(scaled_softplus(jnp.float32(raw), jnp.float32(factor)))
        wanted = factor * np.log1p(np.exp(np.float64(raw)))
        expected = np.log(np.expm1(wanted)) if wanted < 30 else wanted
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)
        slope = jax.grad(scaled_softplus, (0, 1))(jnp.float32(raw), jnp.float32(factor))
        assert np.isfinite(slope).all()
        assert min(slope) > 0


WIDENED = {
    "gaussian": lk.Gaussian("predicted"),
    "student": lk.StudentT(5.0, "predicted"),
    **LIKELIHOODS,
    "categorical": lk.Categorical(),
    "bernoulli": lk.Bernoulli(),
}


@pytest.mark.parametrize("name", WIDENED)
def test_a_factor_of_1_changes_nothing_and_has_a_gradient(name):
    likelihood = WIDENED[name]
    k = EACH.get(name, 2)
    outputs = jnp.concatenate([jnp.asarray(F[k]), jnp.full((1, k), 9.0), jnp.full((1, k), -9.0)])
    same = jax.jit(likelihood.widened)(outputs, jnp.float32(1.0))
    np.testing.assert_allclose(same, outputs, rtol=1e-5, atol=1e-5)
    slope = jax.grad(lambda c: likelihood.widened(outputs, c).sum())(jnp.float32(1.0))
    assert np.isfinite(slope)
    assert slope != 0
    wide = jnp.asarray([[50.0] * k, [-50.0] * k])
    jacobian = jax.jacobian(likelihood.widened)(wide, 1.3)
    assert np.isfinite(jacobian).all()


def test_a_wider_scale():
    outputs = jnp.asarray(F[4]) / 2  # no scale above 3, where it is bent
    for likelihood in (lk.Gaussian("predicted"), lk.StudentT(5.0, "predicted"), lk.LogNormal()):
        before = likelihood.location_scale(outputs, {})
        after = likelihood.location_scale(likelihood.widened(outputs, 1.7), {})
        np.testing.assert_array_equal(after[0], before[0])
        np.testing.assert_allclose(after[1], 1.7 * before[1], rtol=1e-3)
    hurdle = lk.ZeroInflatedLogNormal()
    before, after = (hurdle.distribution(f, {}) for f in (F[3], hurdle.widened(F[3], 1.7)))
    np.testing.assert_allclose(after.scale, 1.7 * before.scale, rtol=1e-3)
    np.testing.assert_array_equal(after.zero, before.zero)
    np.testing.assert_array_equal(after.loc, before.loc)


@pytest.mark.parametrize("raw", [-40.0, -1.0, 1.0])
def test_counts_with_a_wider_variance(raw):
    likelihood = lk.NegativeBinomial()
    outputs = jnp.asarray([[3.0, raw], [0.0, raw]])
    before = likelihood.distribution(outputs, {})
    for factor in (1.2, 3.0):
        after = likelihood.distribution(likelihood.widened(outputs, factor), {})
        np.testing.assert_allclose(after.mean, before.mean, rtol=1e-5)
        np.testing.assert_allclose(after.variance, factor**2 * before.variance, rtol=1e-3)
    narrow = likelihood.distribution(likelihood.widened(outputs, 1e-3), {})
    np.testing.assert_allclose(narrow.variance, narrow.mean, rtol=5e-3)  # Poisson's


def test_shares_with_a_wider_spread():
    likelihood = lk.Beta()
    outputs = jnp.asarray([[0.5, 4.0], [-1.0, 5.0]])
    before = likelihood.distribution(outputs, {})
    after = likelihood.distribution(likelihood.widened(outputs, 2.0), {})
    np.testing.assert_allclose(after.mean, before.mean, rtol=1e-5)
    ratio = jnp.sqrt(after.variance / before.variance)
    np.testing.assert_allclose(ratio, 2, rtol=0.05)


def test_noise_that_is_not_predicted_stays():
    for likelihood in (
        *(lk.Gaussian(0.1), lk.StudentT(4.0, "learned"), lk.LogNormal("learned"), lk.Poisson()),
        *(lk.NegativeBinomial(0.2), lk.Beta("learned"), lk.MultivariateGaussian(np.eye(2))),
        lk.ZeroInflatedLogNormal(0.3),
    ):
        outputs = jnp.asarray(F[2])
        assert likelihood.widened(outputs, 2.0) is outputs


# -- targets on the scale of the outputs


def test_locations():
    y = np.array([[0.5, 2.0], [3.0, 1.0]])
    for likelihood in (lk.Gaussian(0.1), lk.StudentT(), lk.MultivariateGaussian(np.eye(2))):
        np.testing.assert_array_equal(likelihood.location(y), y)
    found = lk.LogNormal(centre=[1.0, 0.0]).location(y)
    np.testing.assert_allclose(found, np.log(y) - [1.0, 0.0])
    np.testing.assert_allclose(lk.Poisson().location(y), np.log(y + 0.5))
    found = lk.NegativeBinomial(centre=2.0).location(y[:, 0])
    np.testing.assert_allclose(found, np.log(y[:, 0] + 0.5) - 2)
    shares = np.array([0.0, 0.25, 1.0])
    found = lk.Beta().location(shares)
    np.testing.assert_allclose(found, special.logit([0.001, 0.25, 0.999]))
    amounts = np.append(np.exp(np.linspace(0, 10, 101)), [0.0, 0.0])
    found = lk.ZeroInflatedLogNormal().location(amounts)
    np.testing.assert_allclose(found, np.append(np.linspace(0, 10, 101), [1.0, 1.0]))
    assert lk.ZeroInflatedLogNormal().location(np.stack([amounts] * 2, 1)).shape == (103, 2)
    assert (lk.ZeroInflatedLogNormal().location(np.zeros(3)) == 0).all()
    for likelihood in (lk.Categorical(), lk.Bernoulli(), lk.Poisson(exposure=True)):
        with pytest.raises(NotImplementedError, match="outputs' scale"):
            likelihood.location(y)


# -- values


@pytest.mark.parametrize(
    ("likelihood", "y", "expected"),
    [
        (lk.LogNormal(), [1.0, 0.0], "numbers above 0 for LogNormal .*, got 0.0 at"),
        (lk.ZeroInflatedLogNormal(), [1.0, -1.0], "numbers of 0 or more .*, got -1.0 at"),
        (lk.NegativeBinomial(), [1.0, 1.5], "whole numbers of 0 or more, .*, got 1.5 at"),
        (lk.Beta(), [0.5, 50.0], "divide percentages by 100.*, got 50.0 at"),
    ],
)
def test_targets_outside_of_the_support_are_refused(likelihood, y, expected):
    with pytest.raises(ValueError, match=expected):
        likelihood.check_values(np.array(y), (2, 2))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: lk.LogNormal(-1.0), "noise must be"),
        (lambda: lk.NegativeBinomial("given"), "dispersion must be a positive number"),
        (lambda: lk.Beta(0.0), "precision must be"),
        (lambda: lk.LogNormal(reach=0.0), "reach must be a number above 0"),
        (lambda: lk.LogNormal(reach=(1.0, 2.0, 3.0)), "reach must be a number above 0"),
        (lambda: lk.LogNormal(centre=np.inf), "centre must be a finite number"),
        (lambda: lk.LogNormal(centre=[1.0] * 3).check((5, 4), np.ones((5, 2))), "centre must be"),
        (lambda: lk.Beta([1.0] * 3).check((5, 2), np.ones((5, 2))), "precision must be one number"),
    ],
)
def test_arguments_are_checked(make, expected):
    with pytest.raises(ValueError, match=expected):
        make()


def test_shares_of_0_and_1_count_as_the_next_ones():
    ends, near = jnp.array([[0.0], [1.0]]), jnp.array([[SQUEEZE], [1 - SQUEEZE]])
    found = [lk.Beta(5.0).log_prob(jnp.zeros((2, 1)), y, {}, None) for y in (ends, near)]
    np.testing.assert_array_equal(*found)


def test_learned_noise_starts_from_the_logarithms():
    weight = np.ones(6)
    found = lk.LogNormal("learned").for_data(AMOUNTS, weight).initial
    np.testing.assert_allclose(found, 0.3 * np.log(AMOUNTS).std(0), rtol=1e-5)
    found = lk.ZeroInflatedLogNormal("learned").for_data(ZEROS, weight).initial
    logs = [np.log(column[column > 0]).std() for column in ZEROS.T]
    np.testing.assert_allclose(found, 0.3 * np.array(logs), rtol=1e-5)
    assert lk.LogNormal("learned", initial=0.2).for_data(AMOUNTS, weight).initial == 0.2


# -- fits, predictions, files

X = np.linspace(-2, 2, 300, dtype="float32")[:, None]


def simulated(name, rng):
    f = 1.2 * X[:, 0]
    if name == "log-normal":
        return np.exp(f + 0.4 * rng.normal(size=300))
    if name == "negative binomial":
        return rng.poisson(np.exp(f) * rng.gamma(2, 1 / 2, 300)).astype(float)
    if name == "beta":
        mean = special.expit(2 * f)
        return rng.beta(8 * mean, 8 * (1 - mean))
    return np.exp(f + 0.4 * rng.normal(size=300)) * (rng.random(300) > special.expit(0.5 - f))


def fitted(likelihood, outputs, x, y):
    network = px.networks.MLP(1, outputs, (8,), key=0)
    model = px.Model(network, px.priors.Gaussian(1.0), likelihood)
    return px.fit(model, (x, y), px.MaximumAPosteriori(3e-2), steps=600, key=0)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_better_than_a_symmetric_likelihood_where_it_is_right(name):
    y = simulated(name, np.random.default_rng(1)).astype("float32")
    train, test = np.arange(300) % 2 == 0, np.arange(300) % 2 == 1
    posterior = fitted(LIKELIHOODS[name], EACH[name], X[train], y[train])
    predictive = posterior.predict(X[test])
    found = predictive.log_prob(y[test])
    student = fitted(lk.StudentT(8.0, "predicted"), 2, X[train], y[train]).predict(X[test])
    if name in ("log-normal", "beta"):
        assert found.mean() > student.log_prob(y[test]).mean() + 0.05
    else:  # a density and a probability do not compare; the mass of a unit, or of 0, does
        here, own = y[test], found
        least, most = (here - 0.5, here + 0.5)
        if name == "zero inflated":
            least, most = (here - 0.1, here + 0.1)
            below = np.where(least < 0, 0, predictive.cdf(np.maximum(least, 0)))
            own = np.log(predictive.cdf(most) - below + 1e-6)
        mass = student.cdf(most) - student.cdf(least)
        assert own.mean() > np.log(mass + 1e-6).mean() + 0.05


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_intervals_stay_within_the_support_and_cover(name):
    y = simulated(name, np.random.default_rng(2)).astype("float32")
    predictive = fitted(LIKELIHOODS[name], EACH[name], X, y).predict(X[::3], key=0)
    y = y[::3]
    low, high = predictive.interval(0.9)
    assert low.min() >= 0
    assert high.max() <= (1 if name == "beta" else 1e3)
    assert (low <= high).all()
    assert 0.84 <= ((low <= y) & (y <= high)).mean() <= 0.99
    levels = predictive.quantile(np.array([0.01, 0.3, 0.7, 0.99]))
    assert (np.diff(levels, axis=0) >= 0).all()
    if name == "negative binomial":
        assert (levels == np.floor(levels)).all()
    drawn = predictive.sample(50)
    assert drawn.shape == (50, 100)
    LIKELIHOODS[name].check_values(drawn, (50, EACH[name]))


@pytest.mark.parametrize("kind", ["central", "highest"])
def test_intervals_with_many_zeros_begin_at_0(kind):
    y = simulated("zero inflated", np.random.default_rng(2)).astype("float32")
    y[X[:, 0] < 0] *= np.random.default_rng(3).random(150) < 0.2
    predictive = fitted(LIKELIHOODS["zero inflated"], 3, X, y).predict(X, key=0)
    often = predictive.cdf(np.zeros(300)) > 0.3
    low, high = predictive.interval(0.8, kind)
    assert often.sum() > 100
    np.testing.assert_array_equal(low[often], 0)
    assert high.max() < 100
    inside = (low <= y) & (y <= high)
    assert 0.75 <= inside.mean() <= 0.97


def test_the_hurdle_in_vmap_and_jit():
    made = jax.jit(jax.vmap(lambda f: HurdleLogNormal(f, f, 1.0).cdf(jnp.ones(()))))
    assert made(jnp.zeros(3)).shape == (3,)


SAVED = {
    "log-normal": (lk.LogNormal(centre=1.0, reach=(2.0, 5.0)), 2),
    "log-normal, learned": (lk.LogNormal("learned"), 1),
    "negative binomial": (lk.NegativeBinomial("learned", centre=0.3, reach=4.0), 1),
    "beta": (lk.Beta(centre=[0.1]), 2),
    "zero inflated": (lk.ZeroInflatedLogNormal(0.4, reach=(1.0, 2.0)), 2),
}


@pytest.mark.parametrize("name", SAVED)
def test_files(name, tmp_path):
    likelihood, outputs = SAVED[name]
    y = simulated(name.split(",")[0], np.random.default_rng(3))[:40, None].astype("float32")
    network = px.networks.MLP(1, outputs, (4,), key=0)
    model = px.Model(network, None, likelihood)
    posterior = px.fit(model, (X[:40], y), px.MaximumAPosteriori(), steps=2, key=0)
    posterior.save(tmp_path / "a.px")
    for again in (px.load(tmp_path / "a.px"), px.load(tmp_path / "a.px", model=model)):
        here, there = posterior.model.likelihood, again.model.likelihood
        assert type(there) is type(here)
        for field, value in vars(here).items():
            np.testing.assert_array_equal(getattr(there, field), value)
        for one in ("mean", "variance"):
            found, expected = (getattr(p.predict(X), one) for p in (again, posterior))
            np.testing.assert_array_equal(found, expected)
