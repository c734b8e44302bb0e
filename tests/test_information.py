"""The identities of information theory, for vectors and for distributions."""

import math
import runpy
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import posterax as px
from posterax import information as info

pytestmark = pytest.mark.usefixtures("hasty_module")

LOG2 = math.log(2)


def vectors(size: int):
    """Probabilities with zeros, tiny entries and point masses among them."""
    entry = st.sampled_from([0.0, 0.0, 1.0, 1e-9, 1e-300]) | st.floats(1e-250, 1)
    weights = st.lists(entry, min_size=size, max_size=size).filter(lambda w: sum(w) > 1e-12)
    return weights.map(lambda w: np.array(w) / sum(w))


PAIRS = st.integers(1, 6).flatmap(lambda n: st.tuples(vectors(n), vectors(n)))
TABLES = st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(
    lambda shape: vectors(shape[0] * shape[1]).map(lambda p: p.reshape(shape))
)
often = settings(max_examples=60, deadline=None)


# -- vectors


@often
@given(st.floats(0, 1), st.floats(0, 1))
def test_self_information_is_rarer_more_and_additive(a, b):
    rare, common = info.self_information(min(a, b)), info.self_information(max(a, b))
    assert rare >= common >= 0
    if a * b > 1e-300:  # the product of independent events, where it is a number
        together = info.self_information(a * b)
        np.testing.assert_allclose(together, rare + common, rtol=1e-12, atol=1e-14)


def test_two_heads_tell_twice_as_much_as_one():
    assert info.self_information(0.25) == 2 * info.self_information(0.5)
    assert info.self_information(0.5, unit="bits") == 1
    assert info.self_information([1.0, 0.0]).tolist() == [0.0, math.inf]


@often
@given(st.integers(1, 6).flatmap(vectors))
def test_entropy_lies_between_certainty_and_uniform(p):
    value = info.entropy(p)
    assert 0 <= value <= math.log(len(p)) + 1e-14
    np.testing.assert_allclose(value, stats.entropy(p), atol=1e-14)
    np.testing.assert_allclose(info.entropy(p, unit="bits"), value / LOG2, rtol=1e-15)
    # the mean of what the outcomes tell
    told = [info.self_information(pk) for pk in p if pk > 0]
    np.testing.assert_allclose(value, np.dot(p[p > 0], told), atol=1e-14)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_the_extremes_of_entropy(size):
    assert info.entropy(np.eye(size)).tolist() == [0.0] * size
    np.testing.assert_allclose(info.entropy(np.full(size, 1 / size)), math.log(size), rtol=1e-14)


@often
@given(PAIRS)
def test_kl_is_cross_entropy_less_entropy_and_positive_unless_equal(pair):
    p, q = pair
    kl, cross = info.kl_divergence(p, q), info.cross_entropy(p, q)
    if np.any((p > 0) & (q == 0)):
        assert kl == cross == math.inf
    else:
        np.testing.assert_allclose(kl, cross - info.entropy(p), rtol=1e-10, atol=1e-12)
    # Pinsker's inequality: it vanishes for equal ones only
    assert kl >= 0.5 * np.abs(p - q).sum() ** 2 - 1e-14
    assert info.kl_divergence(p, p) == 0


@often
@given(PAIRS)
def test_js_is_symmetric_and_bounded(pair):
    p, q = pair
    value = info.js_divergence(p, q)
    assert 0 <= value <= LOG2
    np.testing.assert_allclose(value, info.js_divergence(q, p), atol=1e-15)
    mixed = info.entropy(0.5 * (p + q)) - 0.5 * (info.entropy(p) + info.entropy(q))
    np.testing.assert_allclose(value, mixed, atol=1e-14)
    np.testing.assert_allclose(value, info.information_gain([p, q]), atol=1e-14)
    assert info.js_divergence(p, p) == 0
    if not np.any((p > 0) & (q > 0)):
        np.testing.assert_allclose(value, LOG2, rtol=1e-14)


@often
@given(TABLES)
def test_mutual_information_is_the_divergence_from_independence(joint):
    value, (x, y) = info.mutual_information(joint), (joint.sum(1), joint.sum(0))
    product = np.outer(x, y)
    assert value >= 0
    sums = info.entropy(x) + info.entropy(y) - info.entropy(joint.ravel())
    np.testing.assert_allclose(value, sums, atol=1e-13)
    np.testing.assert_allclose(value, info.mutual_information(joint.T), atol=1e-14)
    np.testing.assert_allclose(info.mutual_information(product / product.sum()), 0, atol=1e-13)
    if product[joint > 0].min() > 0:  # unless tiny margins multiply to zero
        divergence = info.kl_divergence(joint.ravel(), product.ravel())
        np.testing.assert_allclose(value, divergence, atol=1e-13)


@often
@given(TABLES, st.data())
def test_processing_data_adds_no_information(joint, data):
    rows = st.lists(vectors(3), min_size=joint.shape[1], max_size=joint.shape[1])
    channel = np.array(data.draw(rows))
    assert info.mutual_information(joint @ channel) <= info.mutual_information(joint) + 1e-13
    p, q = (part / part.sum() for part in (joint[0] + 1e-3, joint[-1] + 1e-3))
    assert info.kl_divergence(p @ channel, q @ channel) <= info.kl_divergence(p, q) + 1e-13


@often
@given(vectors(3), st.lists(vectors(4), min_size=3, max_size=3))
def test_information_gain_is_the_mutual_information_of_draw_and_label(weights, predictions):
    joint = weights[:, None] * np.array(predictions)
    gain = info.information_gain(predictions, weights)
    np.testing.assert_allclose(gain, info.mutual_information(joint), atol=1e-13)
    assert gain <= info.entropy(weights) + 1e-13
    assert info.information_gain(predictions[:1]) == 0


def test_batches_give_what_their_rows_give(rng):
    p, q = rng.dirichlet(np.ones(4), (2, 5, 3))
    for measure in (info.cross_entropy, info.kl_divergence, info.js_divergence):
        each = [[measure(p[i, j], q[i, j]) for j in range(3)] for i in range(5)]
        np.testing.assert_allclose(measure(p, q), each, rtol=1e-13)
        np.testing.assert_allclose(measure(p, q[0, 0])[1, 2], measure(p[1, 2], q[0, 0]))
    assert info.information_gain(p, np.full(5, 0.2)).shape == (3,)
    assert info.mutual_information(np.full((7, 2, 2), 0.25)).tolist() == [0.0] * 7


def test_what_float32_rounds_is_accepted_and_taken_as_one(rng):
    logits = rng.normal(size=(50, 1000)).astype("float32")
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert info.kl_divergence(p, p).max() == 0
    assert np.all(info.kl_divergence(p, p[::-1]) > 0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: info.entropy([0.5, 0.6]), r"p must sum to one.*1\.1.*divide by p\.sum"),
        (lambda: info.entropy([1.2, -0.2]), r"p must hold probabilities.*softmax\(p"),
        (lambda: info.entropy([np.nan, 1.0]), "p must be free of NaN"),
        (lambda: info.entropy([np.inf, 0.0]), "p must sum to one"),
        (lambda: info.entropy([]), "p must have shape"),
        (lambda: info.entropy(0.5), "p must have shape"),
        (lambda: info.entropy("abc"), "p must be an array of probabilities or a numpyro"),
        (lambda: info.entropy([1.0], unit="bit"), 'unit must be "nats" or "bits"'),
        (lambda: info.kl_divergence([1.0], [0.5, 0.5]), "same outcomes, got 1 and 2"),
        (lambda: info.kl_divergence([1.0], [2.0]), "q must sum to one"),
        (lambda: info.js_divergence(np.ones((2, 1)), np.ones((3, 1))), "batches that broadcast"),
        (lambda: info.kl_divergence(dist.Normal(), [1.0]), r"Categorical\(probs=q\)"),
        (lambda: info.self_information(1.5), "probability must lie between 0 and 1"),
        (lambda: info.self_information(0.5, 1), "value goes with a numpyro distribution"),
        (lambda: info.self_information(dist.Normal()), "value must say which x"),
        (lambda: info.mutual_information([0.5, 0.5]), "joint must have shape"),
        (lambda: info.mutual_information(np.ones((2, 2))), "joint must sum to one.*last 2 axes"),
        (lambda: info.mutual_information(dist.Normal()), "joint must be a table"),
        (lambda: info.information_gain([0.5, 0.5]), "predictions must have shape"),
        (lambda: info.information_gain([[1.0]], [0.5, 0.5]), "weights must be one for each"),
        (lambda: info.kl_divergence(dist.Delta(0.0), dist.Normal()), "p is discrete and q is cont"),
        (lambda: info.kl_divergence(dist.Normal(), dist.Normal(jnp.zeros(2), 1).to_event()),
         "event_shape"),
    ],
)  # fmt: skip
def test_what_is_no_distribution_is_refused(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()


# -- distributions


class OwnNormal(dist.Normal):
    """Not numpyro's, so that nothing is known of it but its density."""


class OwnGamma(dist.Gamma):
    """The same for another support."""


def test_quadrature_agrees_with_closed_forms():
    p, q = (jnp.array([0.0, 3.0, -50.0]), jnp.array([1.0, 0.01, 20.0])), (1.0, 2.0)
    exact = info.kl_divergence(dist.Normal(*p), dist.Normal(*q))
    found = info.kl_divergence(OwnNormal(*p), OwnNormal(*q))
    assert (exact.how, found.how) == ("closed form", "quadrature")
    np.testing.assert_allclose(found.value, exact.value, rtol=1e-10)
    assert np.all(np.abs(found.value - exact.value) <= found.error + 1e-12 * exact.value)


@pytest.mark.slow
def test_quadrature_agrees_with_closed_forms_on_half_a_line():
    p, q = (jnp.array([0.3, 40.0]), jnp.array([2.0, 0.1])), dist.Gamma(2.0, 1.0)
    exact, found = (info.kl_divergence(of(*p), q) for of in (dist.Gamma, OwnGamma))
    np.testing.assert_allclose(found.value, exact.value, rtol=1e-9)


@pytest.mark.slow
def test_quadrature_finds_far_and_narrow_modes():
    weights, scales = np.array([0.7, 0.2999, 1e-4]), np.array([1.0, 1e-3, 1e-6])
    mixture = dist.MixtureSameFamily(
        dist.Categorical(probs=jnp.array(weights)),
        dist.Normal(jnp.array([0.0, 100.0, 10.0]), jnp.array(scales)),
    )
    value, error, how = info.entropy(mixture)
    # components that do not overlap: the weights' entropy and the mean of theirs
    each = 0.5 * np.log(2 * np.pi * np.e * scales**2)
    assert how == "quadrature"
    assert error < 1e-8
    np.testing.assert_allclose(value, info.entropy(weights) + weights @ each, rtol=1e-6)  # float32


def test_heavy_tails_and_supports():
    normal, cauchy = dist.Normal(0.0, 1.0), dist.Cauchy(0.0, 1.0)
    assert float(info.kl_divergence(cauchy, normal)) == math.inf

    def slope(x):
        return stats.norm.pdf(x) * (stats.norm.logpdf(x) - stats.cauchy.logpdf(x))

    truth, _ = integrate.quad(slope, -40, 40, epsabs=1e-12)
    np.testing.assert_allclose(float(info.kl_divergence(normal, cauchy)), truth, rtol=1e-9)
    # half of a normal lies where a half-normal has nothing
    half = dist.HalfNormal(1.0)
    assert float(info.kl_divergence(normal, half)) == math.inf
    np.testing.assert_allclose(float(info.kl_divergence(half, normal)), LOG2, rtol=1e-12)
    uniform = dist.Uniform(0.0, 1.0), dist.Uniform(-1.0, 1.0)
    np.testing.assert_allclose(float(info.kl_divergence(*uniform, unit="bits")), 1, rtol=1e-12)
    apart = info.js_divergence(dist.Uniform(0.0, 1.0), dist.Uniform(2.0, 3.0))
    np.testing.assert_allclose(float(apart), LOG2, rtol=1e-12)


def test_identities_hold_for_densities():
    p, q = OwnNormal(0.5, 1.0), dist.Cauchy(0.0, 2.0)
    kl, cross, own = info.kl_divergence(p, q), info.cross_entropy(p, q), info.entropy(p)
    np.testing.assert_allclose(float(kl), float(cross) - float(own), rtol=1e-10)
    both = [float(info.js_divergence(a, b)) for a, b in ((p, q), (q, p))]
    np.testing.assert_allclose(*both, rtol=1e-10)
    assert 0 < both[0] < LOG2
    bits = info.kl_divergence(p, q, unit="bits")
    np.testing.assert_allclose(bits.value * LOG2, float(kl), rtol=1e-14)
    assert float(info.kl_divergence(p, p)) == 0
    np.testing.assert_allclose(info.self_information(p, 0.5), 0.5 * np.log(2 * np.pi), rtol=1e-14)
    assert info.self_information(dist.HalfNormal(1.0), -1.0) == math.inf


def test_discrete_distributions_are_summed():
    p, q = np.array([0.5, 0.5, 0.0]), np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
    found = info.kl_divergence(dist.Categorical(probs=p), dist.Categorical(probs=jnp.array(q)))
    assert found.how == "sum"
    np.testing.assert_allclose(found.value, info.kl_divergence(p, q), rtol=1e-6)  # float32
    coins = jnp.array([0.0, 0.3, 1.0])
    found = info.kl_divergence(dist.Bernoulli(0.3), dist.Bernoulli(coins))
    np.testing.assert_allclose(found.value, [math.inf, 0, math.inf], atol=1e-7)
    assert info.entropy(dist.Bernoulli(coins)).value[[0, 2]].tolist() == [0, 0]
    a, b = 3.0, 5.0
    found = info.kl_divergence(dist.Poisson(a), dist.Poisson(b))
    np.testing.assert_allclose(float(found), a * np.log(a / b) + b - a, rtol=1e-12)
    counts = info.entropy(dist.Binomial(jnp.array([3, 2000]), 0.5))
    np.testing.assert_allclose(
        counts.value, [stats.binom(n, 0.5).entropy() for n in (3, 2000)], rtol=1e-9
    )
    certain = info.entropy(dist.Geometric(jnp.array([0.25, 1.0])))
    np.testing.assert_allclose(
        certain.value, [4 * float(info.entropy([0.25, 0.75])), 0], rtol=1e-12
    )


def test_sums_admit_the_mass_that_rounding_takes():
    """numpyro's log_prob is off by 1e-7 for these, in float64 too."""
    for p, truth in (
        (dist.NegativeBinomial2(10.0, 3.0), stats.nbinom(3, 3 / 13).entropy()),
        (dist.BetaBinomial(2.0, 3.0, 20), stats.betabinom(20, 2, 3).entropy()),
    ):
        value, error, how = info.entropy(p)
        assert how == "sum"
        assert np.abs(value - truth) < error < 2e-5


def test_large_counts_are_summed_about_their_mean():
    rate = 1e6
    value, error, how = info.entropy(dist.Poisson(rate))
    truth = 0.5 * np.log(2 * np.pi * np.e * rate) - 1 / (12 * rate)
    assert how == "sum"
    assert np.abs(value - truth) < error < 1e-6


def test_point_masses():
    here, there = dist.Delta(jnp.array([1, 1])), dist.Delta(jnp.array([1, 2]))
    assert info.entropy(here).value.tolist() == [0, 0]
    assert info.kl_divergence(here, there).value.tolist() == [0, math.inf]
    np.testing.assert_allclose(info.js_divergence(here, there).value, [0, LOG2], rtol=1e-14)
    np.testing.assert_allclose(float(info.kl_divergence(dist.Delta(0), dist.Poisson(2.0))), 2.0)


@pytest.mark.slow
def test_independent_parts_add_up():
    # numpyro's entropy of the first is that of one part only
    parts = dist.Laplace(jnp.zeros(3), 1.0), dist.Laplace(0.0, 1.0).expand([2, 3])
    for p, shape in zip(parts, [(), (2,)], strict=True):
        found = info.entropy(p.to_event(1))
        assert np.shape(found.value) == shape
        np.testing.assert_allclose(found.value, 3 * (1 + LOG2), rtol=1e-14)
    q = dist.Normal(jnp.array([0.0, 1.0, 2.0]), 1.0)
    each = info.kl_divergence(parts[0], q)
    together = info.kl_divergence(parts[0].to_event(1), q.to_event(1))
    np.testing.assert_allclose(together.value, each.value.sum(), rtol=1e-12)


@pytest.mark.slow
def test_monte_carlo_knows_its_error():
    """A coordinate that both share adds nothing: the truth is an integral over the other."""
    repeats = 40
    p, q = (
        dist.Normal(jnp.tile(jnp.array([shift, 0.0]), (repeats, 1)), 1.0).to_event(1)
        for shift in (0.0, 1.5)
    )
    found = info.js_divergence(p, q, samples=500, key=3)
    assert found.how == "Monte Carlo"
    truth = float(info.js_divergence(dist.Normal(0.0, 1.0), dist.Normal(1.5, 1.0)))
    z = (found.value - truth) / found.error
    low, high = stats.chi2(repeats).ppf([1e-4, 1 - 1e-4])
    assert low < np.sum(z**2) < high
    again = info.js_divergence(p, q, samples=500, key=3)
    np.testing.assert_array_equal(found.value, again.value)


def test_mutual_information_of_a_multivariate_normal():
    rho = 0.8
    covariance = jnp.array([[1.0, 0.0, 2 * rho], [0.0, 1.0, 0.0], [2 * rho, 0.0, 4.0]])
    joint = dist.MultivariateNormal(jnp.zeros(3), covariance)
    for first in (0, [2], [0, 1]):
        found = info.mutual_information(joint, first)
        np.testing.assert_allclose(float(found), -0.5 * np.log(1 - rho**2), rtol=1e-5)  # float32
    assert float(info.mutual_information(joint, 1)) == pytest.approx(0, abs=1e-7)
    for first in (None, 3, [0, 1, 2]):
        with pytest.raises(ValueError, match="first must"):
            info.mutual_information(joint, first)


@pytest.mark.slow
def test_a_class_of_ones_own_is_believed_its_density_only():
    class Shifted(dist.Normal):
        """It inherits numpyro's formulas, and what it adds is not declared to JAX."""

        def __init__(self, shift):
            self.shift = shift
            super().__init__(0.0, 1.0)

        def log_prob(self, value):
            return super().log_prob(value - self.shift)

        def sample(self, key, sample_shape=()):
            return super().sample(key, sample_shape) + self.shift

    found = info.kl_divergence(Shifted(2.0), dist.Normal(0.0, 1.0))
    np.testing.assert_allclose(float(found), 2.0, rtol=1e-5)  # float32


def test_it_is_exported():
    assert px.information is info
    assert set(info.__all__) <= set(dir(info))


@pytest.mark.slow
def test_the_gallery_fits_both_directions():
    """What its page says: the moments of P minimise one direction, each of two modes the other."""
    script = Path(__file__).parents[1] / "docs" / "gallery" / "kl_directions.py"
    page = runpy.run_path(str(script))
    ideal, alternative, _ = page["DIVERGENCES"].values()
    mean, std = page["moments"]()
    around = dist.Normal(mean + jnp.array([0.0, 0.05, -0.05, 0, 0]),
                         std * jnp.array([1.0, 1, 1, 1.03, 0.97]))  # fmt: skip
    assert np.argmin(ideal(around).value) == 0
    for mean, std in ((-1.989, 0.817), (1.994, 0.509)):
        around = dist.Normal(mean + jnp.array([0.0, 0.05, -0.05, 0, 0]),
                             std * jnp.array([1.0, 1, 1, 1.05, 0.95]))  # fmt: skip
        assert np.argmin(alternative(around).value) == 0
