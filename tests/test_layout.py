"""Convolutions and pooling as a CPU runs them fast: the same numbers as JAX's own."""

from functools import partial
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

import posterax as px
from posterax.networks import images
from posterax.program import convolution
from posterax.program.compiled import compiled
from posterax.program.layout import _factors, rewrite
from posterax.program.walker import equations

pytestmark = pytest.mark.usefixtures("hasty_compiler")


def both(function, *arguments):
    """A function's results as written, and rewritten."""
    plain = jax.jit(function)(*arguments)
    new = rewrite(jax.make_jaxpr(function)(*arguments))
    fast = jax.jit(jax.extend.core.jaxpr_as_fun(new))(*jax.tree.leaves(arguments))
    return jax.tree.leaves(plain), fast


def check(function, *arguments, tolerance=2e-5):
    for a, b in zip(*both(function, *arguments), strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        scale = float(jnp.abs(a).max(where=jnp.isfinite(a), initial=1e-6))
        np.testing.assert_allclose(a, b, atol=tolerance * scale, rtol=0)


def with_gradients(function):
    def all_of_them(x, w, seed):
        out, back = jax.vjp(function, x, w)
        return out, *back(jax.random.normal(jax.random.key(seed), out.shape, out.dtype))

    return all_of_them


NUMBERS = {1: ("NCW", "NWC", "CWN"), 2: ("NCHW", "NHWC", "CHWN", "HWNC"), 3: ("NCDHW", "NDHWC")}
KERNELS = {1: ("OIW", "WIO"), 2: ("OIHW", "HWIO"), 3: ("OIDHW", "DHWIO")}


@st.composite
def convolutions(draw):
    space = draw(st.sampled_from((1, 2, 2, 2, 3)))
    few = partial(st.integers, 1)
    groups = draw(st.sampled_from((1, 1, 1, 2, 3, 18)))
    inputs, outputs = groups * draw(few(4 if groups < 18 else 1)), groups * draw(few(3))
    if groups == 1:
        inputs = draw(st.sampled_from((1, 3, 5)))
    examples = draw(st.sampled_from((1, 2, 5, 16)))
    each = st.lists(few(2), min_size=space, max_size=space)
    kernel = draw(st.lists(few(3), min_size=space, max_size=space))
    rhs_dilation, lhs_dilation, strides = draw(each), draw(each), draw(each)
    size = [(k - 1) * d + draw(few(5)) for k, d in zip(kernel, rhs_dilation, strict=True)]
    padding = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(space)]
    lhs, rhs, out = (draw(st.sampled_from(t[space])) for t in (NUMBERS, KERNELS, NUMBERS))
    letters = lhs.replace("N", "").replace("C", "")
    sizes = dict(zip(letters, size, strict=True))
    at = dict(zip(letters, kernel, strict=True))
    x_shape = [{"N": examples, "C": inputs}.get(c) or sizes[c] for c in lhs]
    w_shape = [{"I": inputs // groups, "O": outputs}.get(c) or at[c] for c in rhs]
    options = {
        "window_strides": strides, "padding": padding, "lhs_dilation": lhs_dilation,
        "rhs_dilation": rhs_dilation, "dimension_numbers": (lhs, rhs, out),
        "feature_group_count": groups,
    }  # fmt: skip
    return x_shape, w_shape, options


def convolution_is_the_same(given, seed):
    x_shape, w_shape, options = given
    a, b = jax.random.split(jax.random.key(seed))
    x, w = jax.random.normal(a, x_shape), jax.random.normal(b, w_shape)
    check(with_gradients(lambda x, w: lax.conv_general_dilated(x, w, **options)), x, w, seed)


@settings(deadline=None, max_examples=10, derandomize=True)
@given(convolutions(), st.integers(0, 99))
def test_any_convolution_and_its_gradients(given, seed):
    convolution_is_the_same(given, seed)


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(convolutions(), st.integers(0, 99))
def test_many_convolutions_and_their_gradients(given, seed):
    convolution_is_the_same(given, seed)


@pytest.mark.parametrize("shapes", [((17, 1, 12, 12), (6, 1, 5, 5)), ((32, 8, 9, 9), (8, 8, 3, 3))])
def test_the_fast_ways_are_taken(shapes, monkeypatch):
    """Few channels by patches or shifts, kernels' gradients in parts; limits change no number."""
    x, w = (jax.random.normal(jax.random.key(i), s) for i, s in enumerate(shapes))

    def run(x, w):
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")
        )

    def names(limit):
        monkeypatch.setattr(convolution, "PATCH_BYTES", limit)
        monkeypatch.setattr(convolution, "SHIFT_BYTES", limit)
        check(with_gradients(run), x, w, 0)
        program = rewrite(jax.make_jaxpr(with_gradients(run))(x, w, 0))
        return [eqn.primitive.name for eqn in equations(program.jaxpr)]

    usual, tight = names(2**24), names(2 * 25 * 144 * 4)
    if shapes[0][1] == 1:
        assert usual.count("dot_general") == 3  # the result and the gradients of both
        assert "scan" in tight  # patches of two examples at a time
        assert tight.count("dot_general") == 2
    else:
        assert usual.count("conv_general_dilated") == 2 + 32 // convolution.PART


@pytest.mark.parametrize("groups", [1, 4])
def test_half_precision_is_added_up_by_xla(groups):
    def run(x, w):
        return lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=groups)

    a, b = jax.random.split(jax.random.key(0))
    x = jax.random.normal(a, (16, 4, 6, 6), jnp.bfloat16)
    w = jax.random.normal(b, (8, 4 // groups, 3, 3), jnp.bfloat16)
    check(with_gradients(run), x, w, 0, tolerance=1e-2)


def test_batch_groups():
    def run(x, w):
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), batch_group_count=3
        )

    a, b = jax.random.split(jax.random.key(0))
    check(run, jax.random.normal(a, (6, 7, 7, 4)), jax.random.normal(b, (3, 3, 4, 6)))


@settings(deadline=None, max_examples=8)
@given(
    st.lists(st.integers(1, 3), min_size=2, max_size=2),
    st.lists(st.integers(1, 3), min_size=2, max_size=2),
    st.sampled_from(("VALID", "SAME", [(0, 0), (0, 0), (1, 0), (0, 1)])),
    st.booleans(), st.integers(0, 99),
)  # fmt: skip
def test_max_pooling_and_its_gradient(window, strides, padding, ties, seed):
    x = jax.random.normal(jax.random.key(seed), (2, 3, 7, 8))
    x = jnp.round(x) if ties else x

    def pool(x, scale):
        return lax.reduce_window(
            x * scale, -jnp.inf, lax.max, (1, 1, *window), (1, 1, *strides), padding
        )

    check(with_gradients(pool), x, jnp.ones((3, 1, 1)), seed)


def short_resnet():
    """A block a stage, of three: every kind of layer that ResNet-20 has."""
    with mock.patch.dict(images._LAYOUTS, {20: (16, (1, 1, 1), False)}):
        return px.networks.ResNet(20, 1, 3, width=4, key=0)


NETWORKS = {
    "LeNet": lambda: px.networks.LeNet5(image_size=16, key=0),
    "short ResNet": short_resnet,
    "short U-Net": lambda: px.networks.UNet(1, 3, width=4, levels=1, key=0),
}
LONGER = {
    "ConvNet": lambda: px.networks.ConvNet(
        1, 3, 23, channels=(2, 4, 8), hidden_sizes=(4, 4), key=0
    ),
    "ResNet-20": lambda: px.networks.ResNet(20, 1, 3, width=4, key=0),
    "ResNet-18": lambda: px.networks.ResNet(18, 1, 3, width=4, key=0),
    "U-Net": lambda: px.networks.UNet(1, 3, width=4, levels=2, key=0),
}


def network_is_the_same(name, make):
    network = make()
    size = {"LeNet": 16, "ConvNet": 23}.get(name, 8)
    x = jax.random.normal(jax.random.key(1), (4, 1, size, size))
    params, static = eqx.partition(network, eqx.is_inexact_array)

    def loss(params, x):
        return jnp.sum(jnp.tanh(jax.vmap(eqx.combine(params, static))(x)) ** 2)

    check(jax.value_and_grad(loss, argnums=(0, 1)), params, x, tolerance=2e-4)
    # several draws of the weights, as chains and members have them
    many = jax.tree.map(lambda a: jnp.stack([a, 1.1 * a]), params)
    check(jax.vmap(jax.grad(loss), (0, None)), many, x, tolerance=2e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name):
    network_is_the_same(name, NETWORKS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", LONGER)
def test_longer_networks(name):
    network_is_the_same(name, LONGER[name])


def test_inside_loops_and_checkpoints():
    w = jax.random.normal(jax.random.key(0), (5, 5, 3, 3)) / 6
    x = jax.random.normal(jax.random.key(1), (2, 5, 6, 6))

    def layer(x, w):
        return jnp.tanh(lax.conv_general_dilated(x, w, (1, 1), "SAME"))

    def run(w, x):
        x = lax.scan(lambda x, _: (layer(x, w), None), x, None, 3)[0]
        x = jax.checkpoint(layer)(x, w)
        x = lax.cond(x.sum() > 0, layer, lambda x, w: x, x, w)
        return jnp.sum(lax.fori_loop(0, 2, lambda i, x: layer(x, w), x) ** 2)

    check(jax.grad(run), w, x)
    program = rewrite(jax.make_jaxpr(jax.grad(run))(w, x))
    kept = [eqn for eqn in equations(program.jaxpr) if eqn.primitive.name == "conv_general_dilated"]
    assert kept
    assert {eqn.params["dimension_numbers"].lhs_spec for eqn in kept} == {(0, 3, 1, 2)}
    assert any("policy" in eqn.params for eqn in equations(program.jaxpr))


def test_axes_are_moved_once():
    """Activations and norms between convolutions are done on the axes as they lie."""
    network = px.networks.ResNet(20, 3, 10, width=8, key=0)
    program = rewrite(jax.make_jaxpr(jax.vmap(network))(jnp.ones((7, 3, 16, 16))))
    moved = [
        eqn for eqn in equations(program.jaxpr)
        if eqn.primitive.name == "transpose" and eqn.invars[0].aval.size > 7 * 16 * 4
    ]  # fmt: skip
    shapes = [eqn.invars[0].aval.shape for eqn in moved]
    assert sum(7 in shape and 3 not in shape for shape in shapes) <= 2  # behind the patches


def test_other_programs_are_left_alone():
    program = jax.make_jaxpr(lambda x: jnp.tanh(x @ x))(jnp.ones((2, 2)))
    assert rewrite(program) is program


@given(st.lists(st.integers(1, 4), max_size=4), st.data())
def test_reshapes_are_split_into_their_factors(shape, data):
    """Any split of axes into factors, with axes of length 1 anywhere."""
    after = []
    for n in shape:
        parts = data.draw(st.sampled_from([[n], [n, 1], [1, n], [2, 2] if n == 4 else [n]]))
        after += parts
    groups = _factors(shape, after)
    assert [a for old, _ in groups for a in old] == [a for a, n in enumerate(shape) if n > 1]
    assert [a for _, new in groups for a in new] == [a for a, n in enumerate(after) if n > 1]
    for old, new in groups:
        assert np.prod([shape[a] for a in old]) == np.prod([after[a] for a in new])


def test_derivatives_of_a_compiled_function_are_as_written():
    """Within someone's transformation the function keeps derivatives of its own."""

    @jax.custom_jvp
    def odd(x):
        return x

    odd.defjvps(lambda t, _, x: 7 * t)

    @compiled
    def function(x, w):
        return jnp.sum(odd(lax.conv_general_dilated(x, w, (1, 1), "SAME")))

    x, w = jnp.ones((1, 1, 3, 3)), jnp.ones((1, 1, 1, 1))
    assert float(function(x, w)) == 9
    assert float(jax.grad(function, 1)(x, w).sum()) == 63
    assert float(jax.jit(lambda y: y + function(x, w))(1.0)) == 10  # of constants, inside another
