"""The vectorised functions against scipy in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

from posterax._util.special import inverse_softplus, normal_from_bits, softplus
from posterax.infer.objective import adam


def test_softplus_is_accurate_everywhere():
    x = np.concatenate([np.linspace(-86, 86, 200_001), [0.0, -1e-30, 1e-30]]).astype(np.float32)
    exact = np.logaddexp(0, x.astype(np.float64))
    found = np.asarray(jax.jit(softplus)(x), np.float64)
    np.testing.assert_allclose(found, exact, rtol=3e-7)
    assert float(softplus(jnp.float32(-200.0))) == 0
    assert float(softplus(jnp.float32(200.0))) == 200


def test_softplus_has_the_logistic_as_its_derivative():
    x = jnp.linspace(-30, 30, 601)
    np.testing.assert_allclose(jax.vmap(jax.grad(softplus))(x), jax.nn.sigmoid(x), rtol=1e-6)
    np.testing.assert_allclose(
        softplus(inverse_softplus(jnp.exp(x / 6))), jnp.exp(x / 6), rtol=2e-6
    )


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_softplus_of_other_types_is_jax_own(dtype):
    x = jnp.linspace(-3, 3, 7).astype(dtype)
    assert softplus(x).dtype == dtype
    np.testing.assert_array_equal(softplus(x), jax.nn.softplus(x))


def test_normals_are_the_quantiles_of_their_words():
    """All leading bits, and the far tails one by one."""
    edge = np.arange(2**16, dtype=np.uint32)
    middle = np.arange(0, 2**32, 2**15 + 128, dtype=np.uint64).astype(np.uint32)
    bits = np.concatenate([edge << 8, middle, 2**31 + (edge << 8), np.uint32(2**31 - 1) - edge])
    odd = (bits.view(np.int32) >> 7) | 1
    exact = np.sign(odd) * -stats.norm.ppf((1 - np.abs(odd) / 2**24) / 2)
    found = np.asarray(jax.jit(normal_from_bits)(jnp.asarray(bits)), np.float64)
    np.testing.assert_allclose(found, exact, rtol=3e-6)
    assert np.abs(found).max() < 5.5
    assert np.abs(found).max() > 5.3


def test_normals_are_standard_normal():
    words = np.random.default_rng(0).integers(0, 2**32, 2_000_000, dtype=np.uint32)
    z = np.asarray(normal_from_bits(jnp.asarray(words)), np.float64)
    assert stats.kstest(z, "norm").pvalue > 1e-4
    np.testing.assert_array_equal(  # symmetric, word for word
        normal_from_bits(jnp.asarray(words)), -normal_from_bits(jnp.asarray(~words))
    )


def test_adam_is_adam(rng):
    """The same path as optax's, to rounding, with a rate that changes."""
    rate = lambda step: 0.1 / (1 + step)  # noqa: E731
    ours, theirs = adam(rate), optax.adam(rate)
    w, v = jnp.ones(5), jnp.ones(5)
    a, b = ours.init(w), theirs.init(v)
    for _ in range(50):
        g = jnp.asarray(rng.normal(size=5) * [1, 1e-3, 1e-6, 1e3, 0], jnp.float32)
        move, a = ours.update(g, a, w)
        other, b = theirs.update(g, b, v)
        np.testing.assert_allclose(move, other, rtol=1e-4, atol=1e-9)
        w, v = w + move, v + other
    np.testing.assert_allclose(w, v, rtol=1e-5)
