"""The fast generator of weight noise: statistical tests, and weak generators that fail them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from posterax._util.noise import noise_key, standard_normal_like

N, STREAMS = 4096, 512


def streams(how):
    """Words of many streams whose keys are related in one of the ways a fit relates them."""
    key = noise_key(jax.random.key(7))
    keys = {
        "fold_in": lambda: jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(STREAMS)),
        "split": lambda: jax.random.split(key, STREAMS),
        "seeds": lambda: jax.vmap(lambda i: noise_key(jax.random.key(i)))(jnp.arange(STREAMS)),
        "steps": lambda: noise_key(jax.random.split(jax.random.key(3), STREAMS)),
        "nested": lambda: jax.vmap(
            lambda i: jax.random.fold_in(jax.random.fold_in(key, i // 16), i % 16)
        )(jnp.arange(STREAMS)),
    }[how]()
    return np.asarray(jax.jit(jax.vmap(lambda k: jax.random.bits(k, (N,))))(keys))


# -- the battery: each takes words (streams, N) and returns p-values


def moments(words):
    """Mean, variance, skewness and kurtosis of the normals, all streams pooled."""
    z = stats.norm.ppf((words.astype(np.float64) + 0.5) / 2**32).ravel()
    n = len(z)
    spreads = (1, 2, 15, 96)  # Var of z, z², z³, z⁴
    truths = (0, 1, 0, 3)
    scores = [
        (np.mean(z**k) - t) / np.sqrt(s / n)
        for k, t, s in zip((1, 2, 3, 4), truths, spreads, strict=True)
    ]
    return 2 * stats.norm.sf(np.abs(scores))


def uniformity(words):
    """Kolmogorov–Smirnov of each stream, and of their p-values."""
    each = np.array([stats.kstest(w / 2**32, "uniform").pvalue for w in words[:128]])
    return [stats.kstest(each, "uniform").pvalue]


def bit_balance(words):
    """Every one of the 32 bits is set half the time."""
    counts = np.array([((words >> b) & 1).sum() for b in range(32)])
    score = (counts - words.size / 2) / np.sqrt(words.size / 4)
    return [stats.chi2(32).sf(score @ score)]


def serial(words):
    """Neighbours at several distances within a stream are uncorrelated, in high and low bits."""
    found = []
    for shift in (0, 16):
        u = ((words << shift) & 0xFFFFFFFF).astype(np.float64) / 2**32 - 0.5
        for lag in (1, 2, 3, 64, 1200):
            score = np.sum(u[:, lag:] * u[:, :-lag]) * 12 / np.sqrt(u[:, lag:].size)
            found.append(2 * stats.norm.sf(abs(score)))
    return found


def cross(words):
    """The same place in successive streams (steps, layers) is uncorrelated."""
    found = []
    for shift in (0, 16):
        u = ((words << shift) & 0xFFFFFFFF).astype(np.float64) / 2**32 - 0.5
        for apart in (1, 2, 7):
            score = np.sum(u[apart:] * u[:-apart]) * 12 / np.sqrt(u[apart:].size)
            found.append(2 * stats.norm.sf(abs(score)))
    return found


def shifted(words):
    """No stream is a shifted copy of its successor: equal words at small shifts are rare."""
    found = []
    for shift in (0, 1, 2, 5):
        a, b = words[1:, shift:], words[:-1, : N - shift]
        expected = a.size / 2**32
        found.append(stats.poisson(expected).sf(int(np.sum(a == b)) - 1))
    return found


def collisions(words):
    """Repeats over all streams together are as rare as by chance (birthdays)."""
    repeats = words.size - len(np.unique(words))
    expected = words.size**2 / 2 / 2**32
    return [stats.poisson(expected).sf(repeats - 1), stats.poisson(expected).cdf(repeats)]


BATTERY = [moments, uniformity, bit_balance, serial, cross, shifted, collisions]


@pytest.mark.parametrize("how", ["fold_in", "split", "seeds", "steps", "nested"])
def test_generator_passes(how):
    words = streams(how)
    found = {test.__name__: np.min(test(words)) for test in BATTERY}
    assert min(found.values()) > 1e-5, found


def counter(multiplier, start):
    """Words of weak generators: a plain counter, no mixing."""
    i = np.arange(N, dtype=np.uint64)[None] + start(np.arange(STREAMS, dtype=np.uint64))[:, None]
    return ((i * np.uint64(multiplier)) & np.uint64(0xFFFFFFFF)).astype(np.uint32)


WEAK = {
    "golden ratio steps": lambda: counter(0x9E3779B9, lambda s: s * np.uint64(977)),
    "streams are shifts of one": lambda: streams("fold_in")[:1].repeat(STREAMS, 0)[
        np.arange(STREAMS)[:, None], (np.arange(N)[None] + np.arange(STREAMS)[:, None]) % N
    ],
    "every stream the same": lambda: streams("fold_in")[:1].repeat(STREAMS, 0),
    "low bits stuck": lambda: streams("fold_in") & np.uint32(0xFFFFFF00),
    "linear congruence": lambda: counter(1664525, lambda s: s * np.uint64(1013904223)),
}


@pytest.mark.parametrize("name", WEAK)
def test_weak_generators_fail(name):
    words = WEAK[name]()
    assert min(np.min(test(words)) for test in BATTERY) < 1e-9


def test_normals_have_the_right_tails():
    z = np.asarray(jax.jit(lambda k: standard_normal_like(k, jnp.zeros((2000, 2000))))(
        jax.random.key(11)
    )).ravel().astype(np.float64)  # fmt: skip
    for limit in (1, 2, 3, 4, 4.5):
        expected = len(z) * 2 * stats.norm.sf(limit)
        found = np.sum(np.abs(z) > limit)
        assert abs(found - expected) < 5 * np.sqrt(expected)
    assert np.all(np.isfinite(z))


def test_leaves_and_steps_never_share_noise():
    """No repeats across layers and steps: not even two equal neighbours in a row."""
    tree = {"a": jnp.zeros(64), "b": jnp.zeros(64), "c": jnp.zeros((8, 8))}
    keys = jax.random.split(jax.random.key(0), 1000)
    noise = jax.jit(jax.vmap(lambda k: standard_normal_like(k, tree)))(keys)
    rows = np.concatenate([np.asarray(a).reshape(1000, -1) for a in noise.values()])
    pairs = rows[:, :2].copy().view(np.uint64)
    assert len(np.unique(pairs)) == len(pairs)
    correlation = np.corrcoef(np.asarray(noise["a"]).ravel(), np.asarray(noise["b"]).ravel())[0, 1]
    assert abs(correlation) < 5 / np.sqrt(64_000)


def test_it_is_a_jax_key_under_every_transformation():
    key = noise_key(jax.random.key(0))
    loop = jax.lax.scan(
        lambda c, i: (c, jax.random.normal(jax.random.fold_in(c, i))), key, jnp.arange(5)
    )[1]
    direct = jnp.stack([jax.random.normal(jax.random.fold_in(key, i)) for i in range(5)])
    mapped = jax.vmap(lambda i: jax.random.normal(jax.random.fold_in(key, i)))(jnp.arange(5))
    np.testing.assert_array_equal(loop, direct)
    np.testing.assert_array_equal(mapped, direct)
    assert noise_key(key) is key
    assert jax.random.bits(key, (3,), jnp.uint8).dtype == jnp.uint8
