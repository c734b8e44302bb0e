"""The distribution-valued forward against plain forwards at sampled weights.

Every kind of layer, from every library, under both rules: the same means and the same variances,
and the same covariances wherever one weight sample is what an example sees.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import lax
from scipy import stats

import posterax as px
from posterax._util.noise import noise_key
from posterax._util.tree import path_name
from posterax.model import Parameters
from posterax.posteriors.random_weights import forward
from posterax.program.reuse import uses

pytestmark = pytest.mark.usefixtures("hasty_compiler")
DRAWS = 4000
RULES = ("local", "flipout")
KEY, ONE = jax.random.key(0), jnp.ones(())


class Case(NamedTuple):
    """A network, the shape of its inputs, and which of its weights are random."""

    network: Callable[[], Any]
    shape: tuple[int, ...]
    random: tuple[str, ...] = ("",)  # parts of names


def plain(apply, **shapes):
    """A network of the user's own, with weights of these shapes."""

    def build():
        keys = jax.random.split(jax.random.key(1), len(shapes))
        params = {
            n: 0.5 * jax.random.normal(k, s) for k, (n, s) in zip(keys, shapes.items(), strict=True)
        }
        return params, apply

    return build


class Equinox(eqx.Module):
    """Layers in a row, each with a key of its own."""

    layers: list
    call: Callable = eqx.field(static=True)

    def __init__(self, *layers, call=lambda layer, x: layer(x)):
        self.layers, self.call = list(layers), call

    def __call__(self, x):
        for layer in self.layers:
            x = self.call(layer, x) if isinstance(layer, eqx.Module) else layer(x)
        return x


def equinox(layer, *args, call=lambda layer, x: layer(x), **options):
    return lambda: Equinox(layer(*args, **options, key=jax.random.key(2)), call=call)


unbiased = partial(equinox, use_bias=False)


class Flax(nnx.Module):
    def __init__(self, *layers):
        self.layers = nnx.List(layers)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def flax(*layers):
    """Layers of Flax NNX in a row, each a function of ``rngs``."""

    def build():
        rngs = nnx.Rngs(3)
        return Flax(*[layer(rngs) for layer in layers])

    return build


def flax_conv(*args, layer=nnx.Conv, use_bias=False, **options):
    return flax(lambda rngs: layer(*args, use_bias=use_bias, rngs=rngs, **options))


def conv(spec=("NCH", "OIH", "NCH"), **options):
    options = {"window_strides": (1,), "padding": "VALID", **options}
    return lambda p, x: lax.conv_general_dilated(x, p["w"], dimension_numbers=spec, **options)


def batch_groups(p, x):
    """Two kernels for two halves of the channels, by way of the batch axis."""
    halves = x.reshape(x.shape[0], 2, -1, x.shape[-1])
    stacked = jnp.swapaxes(halves, 0, 1).reshape(-1, *halves.shape[2:])
    return conv(batch_group_count=2)(p, stacked)


@jax.custom_vjp
def softsign(x):
    return x / (1 + jnp.abs(x))


softsign.defvjp(
    lambda x: (softsign(x), x), lambda x, g: (g / jnp.square(1 + jnp.abs(x)),)
)  # fmt: skip


def remat(p, x):
    return jax.checkpoint(lambda w, x: jnp.tanh(x @ w))(p["w"], x) @ p["v"]


def attend(layer, x):
    return layer(x, x, x)


DENSE = {
    "x@W": Case(plain(lambda p, x: x @ p["w"], w=(3, 2)), (2, 3)),
    "W@x": Case(plain(lambda p, x: (p["w"] @ x.T).T, w=(2, 3)), (2, 3)),
    "einsum": Case(
        plain(lambda p, x: jnp.einsum("nij,jik->nk", x, p["w"]), w=(3, 2, 2)), (2, 2, 3)
    ),
    "expanded": Case(plain(lambda p, x: x[:, None] @ p["w"][None], w=(3, 2)), (2, 3)),
    "time": Case(plain(lambda p, x: x @ p["w"], w=(3, 2)), (2, 2, 3)),
    "checkpoint": Case(plain(remat, w=(3, 2), v=(2, 2)), (2, 3)),
    "custom derivative": Case(
        plain(lambda p, x: softsign(x @ p["w"]) @ p["v"], w=(3, 2), v=(2, 2)), (2, 3)
    ),
    "equinox mlp": Case(lambda: px.networks.MLP(3, 2, (4,), key=0), (2, 3)),
    "equinox attention, one step": Case(
        equinox(eqx.nn.MultiheadAttention, 2, 4, call=attend), (2, 1, 4)
    ),
    # a step's query and output are its own; keys and values are mixed over steps
    "equinox attention, three steps": Case(
        equinox(eqx.nn.MultiheadAttention, 2, 4, call=attend), (1, 3, 4), ("query", "output")
    ),
    "flax mlp": Case(
        flax(
            lambda r: nnx.Linear(3, 4, rngs=r),
            lambda r: nnx.relu,
            lambda r: nnx.Linear(4, 2, rngs=r),
        ),
        (2, 3),
    ),
    "flax general": Case(
        flax(lambda r: nnx.LinearGeneral((2, 3), (2, 2), axis=(-2, -1), rngs=r)), (2, 2, 3)
    ),
    "flax einsum": Case(
        flax(lambda r: nnx.Einsum("nhd,hdk->nhk", (2, 3, 2), (2, 2), rngs=r)), (2, 2, 3)
    ),
    "flax attention, one step": Case(
        flax(lambda r: nnx.MultiHeadAttention(2, 4, use_bias=False, decode=False, rngs=r)),
        (2, 1, 4),
    ),
    # what follows the statistics of the batch; before them examples have noise of their own
    "flax norms and dropout": Case(
        flax(
            lambda r: nnx.Linear(3, 4, rngs=r),
            lambda r: nnx.BatchNorm(4, rngs=r),
            lambda r: nnx.Dropout(0.3, rngs=r),
            lambda r: nnx.Linear(4, 4, rngs=r),
            lambda r: nnx.LayerNorm(4, rngs=r),
            lambda r: nnx.Linear(4, 1, rngs=r),
        ),
        (4, 3),
        ("layers.1", "layers.3", "layers.4", "layers.5"),
    ),
    "flax embedding": Case(
        flax(
            lambda r: lambda x: (x > 0).astype(int),
            lambda r: nnx.Embed(2, 3, rngs=r),
            lambda r: nnx.Linear(3, 2, rngs=r),
        ),
        (3,),
    ),
}
STEPS = ("time", "equinox attention, three steps")  # several rows an example
CONVOLUTIONS = {
    "1-D": Case(plain(conv(), w=(2, 2, 3)), (2, 2, 5)),
    "channels last": Case(plain(conv(("NHC", "HIO", "NHC")), w=(3, 2, 2)), (2, 5, 2)),
    "examples last": Case(plain(conv(("CHN", "OIH", "NCH")), w=(2, 2, 3)), (2, 5, 2)),
    "strided": Case(plain(conv(window_strides=(2,)), w=(2, 2, 2)), (2, 2, 6)),
    "dilated": Case(plain(conv(rhs_dilation=(2,)), w=(2, 2, 2)), (2, 2, 5)),
    "grouped": Case(plain(conv(feature_group_count=2), w=(2, 2, 3)), (2, 4, 5)),
    "depthwise": Case(plain(conv(feature_group_count=2), w=(4, 1, 3)), (2, 2, 4)),
    "batch groups": Case(plain(batch_groups, w=(2, 2, 3)), (2, 4, 5)),
    "transposed": Case(
        plain(lambda p, x: lax.conv_transpose(x, p["w"], (2,), "SAME"), w=(3, 2, 2)), (2, 2, 2)
    ),
    "transposed, flipped": Case(
        plain(
            lambda p, x: lax.conv_transpose(x, p["w"], (2,), "SAME", transpose_kernel=True),
            w=(3, 1, 2),
        ),
        (2, 2, 2),
    ),
    "equinox 1-D": Case(equinox(eqx.nn.Conv1d, 2, 2, 3), (2, 2, 5)),
    "equinox 2-D": Case(unbiased(eqx.nn.Conv2d, 1, 2, 2, stride=2), (2, 1, 4, 4)),
    "equinox dilated": Case(unbiased(eqx.nn.Conv2d, 1, 1, 2, dilation=2), (2, 1, 4, 4)),
    "equinox grouped": Case(unbiased(eqx.nn.Conv2d, 4, 2, 2, groups=2), (2, 4, 3, 3)),
    "equinox depthwise": Case(unbiased(eqx.nn.Conv1d, 2, 4, 3, groups=2), (2, 2, 4)),
    "equinox transposed 1-D": Case(unbiased(eqx.nn.ConvTranspose1d, 2, 2, 3, stride=2), (2, 2, 2)),
    "equinox transposed 2-D": Case(
        unbiased(eqx.nn.ConvTranspose2d, 2, 2, 2, groups=2), (2, 2, 1, 2)
    ),
    "flax 1-D": Case(flax_conv(2, 2, (3,), padding="VALID", use_bias=True), (2, 5, 2)),
    "flax causal": Case(flax_conv(2, 2, (2,), padding="CAUSAL"), (2, 4, 2)),
    "flax 2-D": Case(flax_conv(1, 2, (2, 2), strides=2), (2, 4, 4, 1)),
    "flax grouped, dilated": Case(
        flax_conv(2, 2, (2,), feature_group_count=2, kernel_dilation=2, padding="VALID"), (2, 5, 2)
    ),
    "flax transposed": Case(flax_conv(2, 2, (3,), strides=2, layer=nnx.ConvTranspose), (2, 2, 2)),
    "flax transposed, flipped": Case(
        flax_conv(2, 1, (2, 2), transpose_kernel=True, layer=nnx.ConvTranspose), (2, 2, 2, 2)
    ),
}


def two_layers():
    keys = jax.random.split(jax.random.key(4), 3)
    return Equinox(
        eqx.nn.Conv1d(1, 2, 3, padding=1, key=keys[0]),
        jax.nn.relu,
        eqx.nn.Conv1d(2, 2, 3, key=keys[1]),
        lambda x: x.mean(-1),
        eqx.nn.Linear(2, 2, key=keys[2]),
    )


NETWORKS = {"two convolutions, pooled": Case(two_layers, (2, 1, 6))}
CASES = {**DENSE, **CONVOLUTIONS, **NETWORKS}


def model_of(network: Any) -> px.Model:
    return px.Model(network, likelihood=px.likelihoods.Gaussian(0.1))


def inputs(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(5).normal(size=shape).astype("float32")


def deviations(params: Parameters, random: tuple[str, ...] = ("",)) -> Parameters:
    """Between 0.2 and 0.8, so that σ, σ² and a constant are told apart; 0 where not random."""

    def std(path, leaf):
        chosen = any(part in path_name(path) for part in random)
        return chosen * np.linspace(0.2, 0.8, leaf.size, dtype="float32").reshape(leaf.shape)

    return jax.tree_util.tree_map_with_path(std, params)


@cache
def draws(name: str) -> dict[str, np.ndarray]:
    """Outputs over many weight samples by each rule; in the first row the deviations are 0."""
    case = CASES[name]
    model, x = model_of(case.network()), inputs(case.shape)
    mu, sigma = model.parameters, deviations(model.parameters, case.random)
    state = model.network.state
    rng = np.random.default_rng(6)
    scales = np.ones(DRAWS, "float32")
    scales[0] = 0

    def sample(mean, std):
        noise = rng.normal(size=(DRAWS, *mean.shape)).astype("float32")
        noise[0] = 0
        return np.asarray(mean) + std * noise

    w = jax.tree.map(sample, mu, sigma)

    def one(w, scale, keys):
        std = jax.tree.map(lambda s: scale * s, sigma)
        found = {"plain": model.apply(w, state, x, KEY, training=True)[0]}
        for rule, key in zip(RULES, keys, strict=True):
            found[rule] = forward(model, rule, mu, std, state, x, noise_key(key), ONE, KEY)[0]
        return found

    keys = jax.random.split(jax.random.key(6), (DRAWS, 2))
    found = jax.jit(lambda *rows: lax.map(lambda row: one(*row), rows))(w, scales, keys)
    return {rule: np.asarray(y, np.float64) for rule, y in found.items()}


def p_value(rule: str, name: str, joint: bool = False) -> float:
    """One chi-square test that outputs have the moments of plain weight sampling.

    First and second moments of every output; with ``joint`` all products of two outputs of an
    example too.
    """
    found = draws(name)
    centre = found["plain"][0]

    def moments(y):
        y = (y[1:] - centre).reshape(DRAWS - 1, len(centre), -1)
        if not joint:
            return np.concatenate([y, y**2], -1).reshape(len(y), -1)
        i, j = np.triu_indices(y.shape[-1])
        return np.concatenate([y, y[..., i] * y[..., j]], -1).reshape(len(y), -1)

    a, b = moments(found[rule]), moments(found["plain"])
    gap = a.mean(0) - b.mean(0)
    variances, directions = np.linalg.eigh((np.cov(a.T) + np.cov(b.T)) / len(a))
    varies = variances > 1e-6 * variances.max()  # some outputs are tied (zero padding, copies)
    z = (gap @ directions)[varies] / np.sqrt(variances[varies])
    return float(stats.chi2(varies.sum()).sf(z @ z))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", CASES)
def test_without_deviation_it_is_the_plain_forward(name, rule):
    found = draws(name)  # compiled together, so fused in other ways: the last bit may differ
    np.testing.assert_allclose(found[rule][0], found["plain"][0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["W@x", "grouped"])
def test_without_deviation_it_is_exactly_the_plain_forward(name, rule):
    model, x = model_of(CASES[name].network()), inputs(CASES[name].shape)
    mu, state = model.parameters, model.network.state
    none = deviations(mu, random=())
    outputs, *_ = forward(model, rule, mu, none, state, x, noise_key(KEY), ONE, KEY)
    np.testing.assert_array_equal(outputs, model.apply(mu, state, x, KEY, True)[0])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", [*DENSE, *CONVOLUTIONS])
def test_moments_are_those_of_weight_sampling(name, rule):
    found = draws(name)
    assert np.ptp(found[rule], axis=0).min() >= 0
    assert np.ptp(found[rule], axis=0).max() > 0.1  # it is random
    assert p_value(rule, name) > 1e-4


@pytest.mark.parametrize("name", [*CONVOLUTIONS, *NETWORKS])
def test_flipout_shows_an_image_one_weight_sample(name):
    """Covariances between positions too, and so whatever a network makes of them."""
    assert p_value("flipout", name, joint=True) > 1e-4


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", [name for name in DENSE if name not in STEPS])
def test_both_rules_show_a_row_one_weight_sample(name, rule):
    assert p_value(rule, name, joint=True) > 1e-4


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        *[(name, "local") for name in ("1-D", *NETWORKS)],
        *[(name, rule) for name in STEPS for rule in RULES],
    ],
)
def test_noise_is_independent_between_positions(name, rule):
    """As documented; and the test of covariances can fail."""
    assert p_value(rule, name, joint=True) < 1e-5


# --- weights that are sampled -------------------------------------------------------------------


def recurrent(p, x):
    def step(h, x):
        h = jnp.tanh(x @ p["in"] + h @ p["back"])
        return h, h

    return lax.scan(step, jnp.zeros((x.shape[0], 2)), jnp.swapaxes(x, 0, 1))[1][-1]


def tied(p, x):
    """The embedding is the decoder."""
    tokens = (x > 0).astype(int)
    return p["embedding"][tokens] @ p["embedding"].T


def power(p, x):
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] @ p["w"]), (0, x))[1]


def branch(p, x):
    return lax.cond(x.sum() > 0, lambda x: x @ p["w"], lambda x: x - x @ p["w"], x)


class Recurrent(eqx.Module):
    cell: eqx.nn.LSTMCell

    def __call__(self, x):
        start = (jnp.zeros(2), jnp.zeros(2))
        return lax.scan(lambda c, x: (self.cell(x, c), None), start, x)[0][0]


SAMPLED = {
    "scan": (Case(plain(recurrent, **{"in": (3, 2), "back": (2, 2)}), (2, 4, 3)), "loop"),
    "while": (Case(plain(power, w=(2, 2)), (3, 2)), "loop"),
    "cond": (Case(plain(branch, w=(2, 2)), (3, 2)), "loop"),
    "twice": (Case(plain(lambda p, x: jnp.tanh(x @ p["w"]) @ p["w"], w=(2, 2)), (3, 2)), "reused"),
    "a layer called twice": (
        Case(plain(lambda p, x: (f := jax.jit(jnp.dot))(f(x, p["w"]), p["w"]), w=(2, 2)), (3, 2)),
        "reused",
    ),
    "tied": (Case(plain(tied, embedding=(2, 3)), (4,)), "reused"),
    "two weights": (
        Case(plain(lambda p, x: x @ (p["a"] @ p["b"]), a=(2, 2), b=(2, 2)), (3, 2)), "other"
    ),
    # its rows are not examples: every example meets the same product
    "a weight times a function of another": (
        Case(plain(lambda p, x: x @ (p["a"] @ jnp.tanh(p["b"])), a=(2, 2), b=(2, 2)), (3, 2)),
        "other",
    ),
    "repeated": (
        Case(plain(lambda p, x: x @ jnp.broadcast_to(p["w"], (2, 3)), w=(3,)), (3, 2)), "other"
    ),
    "scale": (Case(plain(lambda p, x: x * p["w"], w=(2,)), (3, 2)), "other"),
    "look-up": (Case(plain(lambda p, x: p["w"][(x > 0).astype(int)], w=(2, 3)), (4,)), "other"),
    "equinox lstm": (
        Case(lambda: Recurrent(eqx.nn.LSTMCell(3, 2, key=jax.random.key(0))), (2, 4, 3)), "loop"
    ),
    "flax lstm": (Case(flax(lambda r: nnx.RNN(nnx.LSTMCell(3, 2, rngs=r))), (2, 4, 3)), "loop"),
    "flax norm": (Case(flax(lambda r: nnx.BatchNorm(2, rngs=r)), (3, 2)), "other"),
}  # fmt: skip


def sample_of(model, x, rule, key=KEY):
    """Outputs, and the weights they were made with (distributions for those with a rule)."""
    sigma = deviations(model.parameters)
    state = model.network.state
    args = (model.parameters, sigma, state, x, noise_key(key), ONE, KEY)
    outputs, _, params = forward(model, rule, *args)
    return outputs, params


@pytest.mark.parametrize("name", SAMPLED)
def test_what_is_not_one_product_is_sampled_once(name):
    """The outputs are exactly those of one plain forward at one weight sample."""
    case, kind = SAMPLED[name]
    model, x = model_of(case.network()), inputs(case.shape)
    assert set(use_of(model, x).values()) == {kind}

    @jax.jit
    def both():
        outputs, w = sample_of(model, x, "local")
        return outputs, model.apply(w, model.network.state, x, KEY, training=True)[0], w

    outputs, again, w = both()
    np.testing.assert_array_equal(outputs, again)
    for drawn, mean in zip(jax.tree.leaves(w), jax.tree.leaves(model.parameters), strict=True):
        assert np.all(drawn != mean)


def use_of(model, x):
    def network(weights, x, state):
        return model.apply(Parameters(weights, None), state, x, KEY, training=True)

    found = uses(network, model.parameters.network, x, model.network.state)
    return {path_name(path): k for path, k in jax.tree_util.tree_leaves_with_path(found)}


@pytest.mark.parametrize("rule", RULES)
def test_a_difference_of_equals_is_nothing(rule):
    model = model_of(plain(lambda p, x: x @ p["w"] - x @ p["w"], w=(3, 2))())
    assert not np.any(sample_of(model, inputs((4, 3)), rule)[0])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", CASES)
def test_every_kernel_has_its_rule(name, rule):
    """Products and convolutions once on the way: none of them falls back to sampling."""
    case = CASES[name]
    model = model_of(case.network())
    for path, kind in use_of(model, inputs(case.shape)).items():
        table = "embedding" in path
        kernel = dict(named(model))[path].ndim > 1 and not table and "bias" not in path
        assert (kind == "product") == kernel, path


def named(model):
    leaves = jax.tree_util.tree_leaves_with_path(model.parameters.network)
    return [(path_name(path), leaf) for path, leaf in leaves]


# --- the rest -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_antithetic_noise_is_mirrored(rule):
    model, x = model_of(CASES["1-D"].network()), inputs((2, 2, 5))
    mu, sigma = model.parameters, deviations(model.parameters)
    up, down = (
        forward(model, rule, mu, sigma, (), x, noise_key(KEY), sign, KEY)[0] for sign in (ONE, -ONE)
    )
    middle = model.apply(mu, (), x, None, True)[0]
    np.testing.assert_allclose((up + down) / 2, middle, atol=1e-5)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("special", "usual"),
    [
        (remat, lambda p, x: jnp.tanh(x @ p["w"]) @ p["v"]),
        (
            lambda p, x: softsign(x @ p["w"]) @ p["v"],
            lambda p, x: jax.nn.soft_sign(x @ p["w"]) @ p["v"],
        ),
    ],
    ids=["checkpoint", "custom derivative"],
)
def test_gradients_pass_through_calls(special, usual, rule):
    x = inputs((4, 3))

    def gradient(apply):
        model = model_of(plain(apply, w=(3, 2), v=(2, 2))())
        sigma = deviations(model.parameters)

        def loss(mu, sigma):
            args = (mu, sigma, (), x, noise_key(KEY), ONE, KEY)
            return jnp.sum(forward(model, rule, *args)[0] ** 2)

        return jax.jit(jax.grad(loss, argnums=(0, 1)))(model.parameters, sigma)

    a, b = (jax.flatten_util.ravel_pytree(gradient(f))[0] for f in (special, usual))
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert np.all(a != 0)


def test_a_weight_that_is_a_point_stays_where_it_is():
    model, x = model_of(CASES["custom derivative"].network()), inputs((2, 3))
    sigma = Parameters({"w": None, "v": None}, {})
    args = (model.parameters, sigma, (), x, noise_key(KEY), ONE, KEY)
    outputs, _, params = forward(model, "local", *args)
    np.testing.assert_array_equal(outputs, model.apply(params, (), x, None, True)[0])


def test_summary_says_how_each_weight_is_used():
    def apply(p, x):
        h = jnp.tanh(x["a"] @ p["once"] + p["bias"]) @ p["twice"] @ p["twice"]
        return h + recurrent({"in": p["loop"], "back": jnp.eye(2)}, x["b"])

    shapes = {"once": (3, 2), "bias": (2,), "twice": (2, 2), "loop": (3, 2), "idle": (4,)}
    model = model_of(plain(apply, **shapes)())
    x = {"a": np.ones((5, 3), "float32"), "b": np.ones((5, 4, 3), "float32")}
    table = model.summary(x).splitlines()
    assert table[0].endswith("weights  use")
    found = {line.split()[0].split(".")[-1]: line for line in table[2:7]}
    expected = {
        "once": "product (local, flipout)",
        "bias": "other: sampled",
        "twice": "reused: sampled",
        "loop": "in a loop: sampled",
        "idle": "unused",
    }
    for name, words in expected.items():
        assert found[name].endswith(f"  {words}"), found[name]
    assert " use" not in model.summary()
    with pytest.raises(ValueError, match="does not fit the network"):
        model.summary({"a": np.ones((5, 2), "float32"), "b": x["b"]})
