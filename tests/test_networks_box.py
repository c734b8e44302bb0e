"""The networks in the box: shapes, gradients, files by name, masks, causality, precision."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posterax as px
from posterax.networks import as_network
from posterax.networks.images import as_image

pytestmark = pytest.mark.usefixtures("hasty_compiler")

RNG = np.random.default_rng(0)
N, T = 3, 5
box = px.networks


def normal(*shape):
    return RNG.normal(size=(N, *shape)).astype("float32")


def labels(*shape):
    return RNG.integers(0, 2, (N, *shape))


SEQUENCE = normal(T, 2)
MASK = np.arange(T) < np.array([[5], [3], [1]])
BYTES = RNG.integers(0, 256, (N, 12, 12)).astype("uint8")

# a network, inputs, and targets for it
ROWS = {
    "MLP": (lambda: box.MLP(2, 2, (4, 4), residual=True, key=0), normal(2), labels()),
    "Tabular": (lambda: box.Tabular(2, 2, (4,), offsets=1, key=0), normal(3), labels()),
    "Periodic": (lambda: box.Periodic(3, 2, (4,), numbers=(0, 2), key=0), normal(3), labels()),
    "PiecewiseLinear": (
        lambda: box.PiecewiseLinear([[-1.0, 0.0, 1.0], [0.0, 1.0]], 2, (4,), key=0),
        normal(2),
        labels(),
    ),
    "LeNet5": (lambda: box.LeNet5(1, 2, 12, key=0), BYTES, labels()),
    "ConvNet": (
        lambda: box.ConvNet(
            2, 2, 23, channels=(2, 3, 4), hidden_sizes=(5, 6), activation="softplus", key=0
        ),
        normal(2, 23, 23),
        labels(),
    ),
    "ResNet18": (lambda: box.ResNet(18, 3, 2, width=2, key=0), normal(3, 9, 8), labels()),
    "ResNet20": (lambda: box.ResNet(20, 1, 2, width=2, key=0), normal(8, 8), labels()),
    "UNet": (lambda: box.UNet(1, 2, width=2, levels=2, key=0), normal(6, 7), labels(6, 7)),
    "TemporalConvNet": (
        lambda: box.TemporalConvNet(2, 2, (3, 4), key=0),
        (SEQUENCE, MASK),
        labels(),
    ),
    "temporal per step": (
        lambda: box.TemporalConvNet(2, 2, (3,), 2, per_step=True, key=0),
        SEQUENCE,
        labels(T),
    ),
    "LSTM": (lambda: box.Recurrent(2, 2, 3, key=0), (SEQUENCE, MASK), labels()),
    "GRU": (
        lambda: box.Recurrent(2, 2, 3, cell="gru", per_step=True, key=0),
        SEQUENCE,
        labels(T),
    ),
    "Transformer": (
        lambda: box.Transformer(2, 2, width=4, heads=2, layers=1, length=T, key=0),
        SEQUENCE,
        labels(),
    ),
    "tokens": (
        lambda: box.Transformer(None, 2, width=4, heads=2, layers=1, vocabulary=7, length=T, key=0),
        (RNG.integers(0, 7, (N, T)), MASK),
        labels(),
    ),
}


def outputs_of(network, x):
    network = as_network(network)
    run = jax.jit(lambda params, x: network.apply(params, (), x, None, False)[0])
    return run(network.params, jax.tree.map(jnp.asarray, x))


@pytest.mark.parametrize("name", ROWS)
def test_every_weight_has_a_say_and_the_head_the_last(name):
    make, x, y = ROWS[name]
    network = as_network(make())
    x = jax.tree.map(jnp.asarray, x)
    probe = RNG.normal(size=network.output_shape(x)).astype("float32")
    assert probe.shape == (*y.shape, 2)

    def total(params, x):
        return jnp.sum(probe * network.apply(params, (), x, None, False)[0])

    gradient = jax.jit(jax.grad(total))(network.params, x)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert np.isfinite(leaf).all(), path
        assert np.any(leaf), f"the forward pass forgot {path}"
    # an output is its bias plus the rest, so the gradient of the bias is the probe itself
    head = gradient.head if hasattr(gradient, "head") else gradient.layers[-1]
    np.testing.assert_allclose(head.bias.ravel(), probe.reshape(-1, 2).sum(0), rtol=1e-4, atol=1e-5)


# their other depth, input or output is fitted in make test
SLOW = {"ResNet18", "temporal per step", "Transformer"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in ROWS]
)
def test_files_by_name(name, tmp_path):
    make, x, y = ROWS[name]
    model = px.Model(make(), px.priors.Gaussian(1.0), px.likelihoods.Categorical())
    posterior = px.fit(model, (x, y), px.BayesByBackprop(), steps=2, key=0)
    posterior.save(tmp_path / "p.px")
    loaded = px.load(tmp_path / "p.px")
    a, b = (p.predict(x, samples=2, key=0).mean for p in (posterior, loaded))
    assert a.shape == (*y.shape, 2)
    np.testing.assert_array_equal(a, b)


def test_all_are_registered_and_give_back_their_arguments():
    networks = [eqx.filter_eval_shape(make) for make, _, _ in ROWS.values()]
    for network in networks:
        again = eqx.filter_eval_shape(type(network), **network.config(), key=0)
        assert eqx.tree_equal(again, network)
    assert {type(network) for network in networks} == set(box.BY_NAME.values())
    assert {name: getattr(box, name) for name in box.BY_NAME} == box.BY_NAME
    assert set(box.BY_NAME) < set(box.__all__)


@pytest.mark.parametrize("name", ROWS)
def test_the_weights_decide_the_precision(name):
    make, x, _ = ROWS[name]

    def dtypes(to):
        # as a model casts them: whole numbers and masks stay
        cast = lambda a: a.astype(to) if a.dtype == "float32" else a  # noqa: E731

        def traced(x):
            network = as_network(make())
            params = jax.tree.map(cast, network.params)
            return network.apply(params, (), jax.tree.map(cast, x), None, False)[0], params

        return {a.dtype for a in jax.tree.leaves(eqx.filter_eval_shape(traced, x))}

    assert dtypes("bfloat16") == {jnp.dtype("bfloat16")}
    jax.config.update("jax_enable_x64", True)
    try:
        assert dtypes("float64") == {np.dtype("float64")}
    finally:
        jax.config.update("jax_enable_x64", False)


# -- MLP


def test_residual_layers_add_to_their_input():
    network = box.MLP(2, 1, (4, 4, 3), residual=True, key=0)
    x = normal(2)
    first, second, third, last = network.layers
    h = jax.nn.relu(first(x))
    h = h + jax.nn.relu(second(h))
    np.testing.assert_allclose(network(x), last(jax.nn.relu(third(h))), rtol=1e-5)


def test_residual_signal_keeps_its_size_at_any_depth():
    network = box.MLP(8, 1, (32,) * 40, residual=True, key=0)
    x = jnp.ones((1, 8))
    h = jax.nn.relu(network.layers[0](x))
    start = float(jnp.mean(h**2))
    for layer in network.layers[1:-1]:
        h = h + jax.nn.relu(layer(h))
    assert 0.5 < float(jnp.mean(h**2)) / start < 20


def test_a_config_from_before_residual_still_loads():
    config = box.MLP(3, 1, (8,), key=0).config()
    assert config.pop("residual") is False
    assert box.MLP(**config, key=0).config() == {**config, "residual": False}
    with pytest.raises(ValueError, match="activation given as a function has no saved form"):
        box.MLP(3, 1, (8,), activation=jnp.sin, key=0).config()


# -- images


def test_bytes_are_fractions_of_255():
    network = box.LeNet5(1, 2, 12, key=0)
    fractions = BYTES.astype("float32") / 255
    np.testing.assert_allclose(outputs_of(network, BYTES), outputs_of(network, fractions), 1e-4)
    with_channel = outputs_of(network, BYTES[:, None])
    np.testing.assert_array_equal(with_channel, outputs_of(network, BYTES))


@pytest.mark.parametrize(
    ("shape", "channels", "size", "message"),
    [
        ((784,), 1, 28, r"shape (1, 28, 28) or (28, 28), got (784,); reshape"),
        ((28, 27), 1, 28, "shape (1, 28, 28) or (28, 28), got (28, 27)"),
        ((32, 32, 3), 3, None, "shape (3, H, W), got (32, 32, 3); "),
        ((8, 8), 3, None, "shape (3, H, W), got (8, 8)"),
        ((5, 1, 8, 8), 1, None, "got (5, 1, 8, 8); reshape flat pixels"),
    ],
)
def test_images_of_other_shapes_are_refused(shape, channels, size, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        as_image(np.zeros(shape), channels, "float32", size)


def test_flat_pixels_are_refused_before_a_fit():
    model = px.Model(box.LeNet5(key=0), None, px.likelihoods.Categorical())
    with pytest.raises(ValueError, match=r"x of shape \(3, 784\).*\(1, 28, 28\).*got \(784,\)"):
        px.fit(model, (np.zeros((3, 784)), labels()), px.BayesByBackprop())


def size_of(make):
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter_eval_shape(make)))


def test_numbers_of_weights_as_published():
    assert size_of(lambda: box.ResNet(20, key=0)) == 269_722  # He et al.: 0.27 M
    assert size_of(lambda: box.ResNet(18, key=0)) == 11_173_962  # 11.2 M with 10 classes
    assert size_of(lambda: box.LeNet5(key=0)) == 61_706  # about 60,000 in LeCun et al.
    assert size_of(lambda: box.LeNet5(1, 10, 32, key=0)) == 61_706
    dense = (128 * 2 * 2 + 1) * 1000 + 1001 * 1000 + 1001 * 10
    convolutions = (3 * 25 + 1) * 32 + (32 * 25 + 1) * 64 + (64 * 25 + 1) * 128
    assert size_of(lambda: box.ConvNet(3, 10, 32, key=0)) == dense + convolutions


def lenet(size):
    return box.LeNet5(1, 2, size, key=0)


def convnet(size):
    return box.ConvNet(1, 2, size, channels=(1, 1, 1), hidden_sizes=(), key=0)


@pytest.mark.parametrize(("make", "least"), [(lenet, 12), (convnet, 23)])
def test_any_image_size_from_the_least_fits_the_dense_layers(make, least):
    for size in (least, least + 1, least + 2, least + 3, least + 20):
        image = jnp.zeros((size, size))
        assert eqx.filter_eval_shape(lambda x: make(len(x))(x), image).shape == (2,)
    with pytest.raises(ValueError, match=f"image_size must be a whole number.* of {least} or more"):
        make(least - 1)


def test_unet_aligns_pixel_by_pixel():
    """With mirrored kernels a mirrored image gives mirrored outputs, unless one is shifted."""

    def mirrored(a):
        for axes in ((2,), (3,)):
            a = (a + jnp.flip(a, axes)) / 2 if eqx.is_array(a) and a.ndim == 4 else a
        return a

    network = jax.tree.map(mirrored, box.UNet(1, 2, width=4, levels=2, key=0))
    run = eqx.filter_jit(network)
    image = RNG.normal(size=(12, 8)).astype("float32")
    for axis in (0, 1):
        flipped = run(np.flip(image, axis))
        np.testing.assert_allclose(flipped, np.flip(run(image), axis), rtol=1e-3, atol=1e-4)


def test_unet_continues_sides_that_do_not_halve():
    run = eqx.filter_jit(box.UNet(1, 2, width=2, levels=2, key=0))
    image = RNG.normal(size=(9, 6)).astype("float32")
    longer = np.pad(image, ((0, 3), (0, 2)), mode="edge")
    np.testing.assert_allclose(run(image), run(longer)[:9, :6], rtol=1e-4, atol=1e-5)


# -- sequences


def test_the_future_does_not_change_the_past():
    network = box.TemporalConvNet(2, 3, (4, 4), per_step=True, key=0)
    run = eqx.filter_jit(network)
    x = RNG.normal(size=(20, 2)).astype("float32")
    out = run(x)
    for t in (0, 7, 19):
        changed = x.copy()
        changed[t] += 5
        new = run(changed)
        np.testing.assert_array_equal(new[:t], out[:t])
        assert not np.array_equal(new[t], out[t])
    # as far back as the docstring says: 1 + 2 (kernel − 1)(2^L − 1) = 13 steps
    changed = x.copy()
    changed[0] += 5
    np.testing.assert_array_equal(run(changed)[13:], out[13:])


SEQUENCES = {
    "lstm": lambda: box.Recurrent(2, 3, 4, key=0),
    "gru": lambda: box.Recurrent(2, 3, 4, cell="gru", key=0),
    "temporal": lambda: box.TemporalConvNet(2, 3, (4, 4), key=0),
    "transformer": lambda: box.Transformer(2, 3, width=4, heads=2, length=9, key=0),
    "tokens": lambda: box.Transformer(None, 3, width=4, heads=2, vocabulary=6, length=9, key=0),
}


@pytest.mark.parametrize("front", [0, 3], ids=["after", "around"])
@pytest.mark.parametrize("name", SEQUENCES)
def test_padding_changes_nothing(name, front):
    run = eqx.filter_jit(SEQUENCES[name]())
    if name == "tokens":
        values, garbage = RNG.integers(0, 6, T), -77
    else:
        values, garbage = RNG.normal(size=(T, 2)).astype("float32"), np.nan
    padded = np.full((9, *values.shape[1:]), garbage, values.dtype)
    padded[front : front + T] = values
    mask = np.zeros(9, bool)
    mask[front : front + T] = True
    np.testing.assert_allclose(run((padded, mask)), run(values), rtol=1e-5, atol=1e-6)
    short = mask & (np.arange(9) < front + 2)
    np.testing.assert_allclose(run((padded, short)), run(values[:2]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_a_masked_step_repeats_the_output_before_it(cell):
    run = eqx.filter_jit(box.Recurrent(2, 3, 4, cell=cell, per_step=True, key=0))
    mask = np.array([True, True, False, True, False])
    out = run((SEQUENCE[0], mask))
    np.testing.assert_array_equal(out[2], out[1])
    np.testing.assert_allclose(out[mask], run(SEQUENCE[0][mask]), rtol=1e-5, atol=1e-6)


def test_gradients_stay_finite_where_everything_is_masked():
    for make in SEQUENCES.values():
        network = make()
        tokens = getattr(network, "vocabulary", None) is not None
        x = np.zeros(T, int) if tokens else SEQUENCE[0]
        loss = eqx.filter_jit(eqx.filter_grad(lambda n, x: jnp.sum(n(x) ** 2)))
        for leaf in jax.tree.leaves(loss(network, (x, np.zeros(T, bool)))):
            assert np.isfinite(leaf).all()


def test_the_order_of_tokens_counts_and_strangers_give_nan():
    run = eqx.filter_jit(SEQUENCES["tokens"]())
    assert not np.allclose(run(np.array([1, 2, 3])), run(np.array([3, 2, 1])))
    for stranger in (-1, 6):
        assert np.isnan(run(np.array([1, stranger, 3]))).all()


# -- bad arguments

BAD = {
    "residual": (lambda: box.MLP(2, 1, (4, 3), residual=True, key=0), "residual=True needs"),
    "residual no flag": (lambda: box.MLP(2, 1, residual=1, key=0), "residual must be True or F"),
    "hidden_sizes": (lambda: box.MLP(2, 1, 8, key=0), "hidden_sizes must be several whole num"),
    "in_channels": (lambda: box.LeNet5(0, key=0), "in_channels must be a whole number"),
    "image_size": (lambda: box.LeNet5(image_size=8.0, key=0), "image_size must be a whole number"),
    "activation": (lambda: box.LeNet5(activation="rleu", key=0), "activation must be one of relu"),
    "channels": (lambda: box.ConvNet(channels=(8, 8), key=0), "channels must be 3 whole numbers"),
    "depth": (lambda: box.ResNet(50, key=0), "depth must be one of 18, 20, got 50"),
    "width": (lambda: box.ResNet(18, width=0, key=0), "width must be a whole number"),
    "classes": (lambda: box.UNet(1, None, key=0), "classes must be a whole number"),
    "levels": (lambda: box.UNet(1, 2, levels=0, key=0), "levels must be a whole number"),
    "no channels": (lambda: box.TemporalConvNet(1, 1, (), key=0), "channels must be 1 or more"),
    "kernel": (lambda: box.TemporalConvNet(1, 1, kernel=1, key=0), "kernel must be .* 2 or more"),
    "cell": (
        lambda: box.Recurrent(1, 1, cell="rnn", key=0),
        "cell must be one of 'lstm', 'gru'",
    ),
    "per_step": (lambda: box.Recurrent(1, 1, per_step="yes", key=0), "per_step must be True or"),
    "heads": (lambda: box.Transformer(1, 1, width=6, key=0), "width must be a multiple of heads=4"),
    "in_size": (lambda: box.Transformer(None, 1, key=0), "in_size is for inputs with features"),
    "vocabulary": (lambda: box.Transformer(1, 1, vocabulary=5, key=0), "give one of them"),
    "x of rank 1": (lambda: SEQUENCES["lstm"]()(np.zeros(4)), r"shape \(T, 2\).*got \(4,\)"),
    "three parts": (lambda: SEQUENCES["lstm"]()((1, 2, 3)), "pair .values, mask., got 3 parts"),
    "mask": (
        lambda: SEQUENCES["lstm"]()((np.zeros((4, 2)), np.ones(4, int))),
        r"mask must be boolean, one entry per step, of shape \(4,\), got int32",
    ),
    "tokens": (
        lambda: SEQUENCES["tokens"]()(np.zeros(4)),
        r"whole-number tokens below 2\^31 of shape \(T,\)",
    ),
    "length": (lambda: SEQUENCES["tokens"]()(np.zeros(10, int)), "with length=10 or more"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_say_what_to_write(name):
    call, message = BAD[name]
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
