"""Augmentation: random per example, inside the compiled step, and the same after a resume."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import posterax as px
from posterax.augment import Flip, Shift
from posterax.fitting import loop
from posterax.fitting.prepare import Asked, prepare
from posterax.fitting.start import make_start

pytestmark = pytest.mark.usefixtures("hasty_compiler")

N, SIDE = 24, 6
IMAGES = np.random.default_rng(0).integers(1, 255, (N, 2, SIDE, SIDE)).astype("uint8")
LABELS = np.arange(N) % 3


def moved(image, down, right, fill=0):
    """By plain numpy: the image moved within a border of ``fill``."""
    room = np.pad(image, [(0, 0)] * (image.ndim - 2) + [(SIDE, SIDE)] * 2, constant_values=fill)
    return room[..., SIDE - down : 2 * SIDE - down, SIDE - right : 2 * SIDE - right]


@pytest.mark.parametrize("dtype", ["uint8", "float32", "bfloat16"])
@pytest.mark.parametrize("shape", ["(N, H, W)", "(N, C, H, W)"])
def test_a_shift_moves_every_image_by_its_own_pixels(shape, dtype):
    images = jnp.asarray(IMAGES if "C" in shape else IMAGES[:, 0]).astype(dtype)
    out = Shift(2, fill=7)(jax.random.key(0), images)
    assert (out.shape, out.dtype) == (images.shape, images.dtype)
    moves = []
    for image, got in zip(np.asarray(images), np.asarray(out), strict=True):
        found = [
            (down, right)
            for down in range(-2, 3)
            for right in range(-2, 3)
            if np.array_equal(moved(image, down, right, 7), got)
        ]
        assert len(found) == 1
        moves += found
    assert len(set(moves)) > N / 3


def test_shifts_are_even_and_flips_are_a_fair_coin():
    n = 5000
    spot = jnp.zeros((n, 5, 5), jnp.uint8).at[:, 2, 2].set(1)
    out = np.asarray(Shift(2)(jax.random.key(0), spot)).reshape(n, 25)
    assert stats.chisquare(out.sum(0)).pvalue > 1e-3
    left = jnp.zeros((n, 2, 2), jnp.uint8).at[:, :, 0].set(1)
    flipped = np.asarray(Flip()(jax.random.key(0), left))[:, 0, 1]
    assert stats.binomtest(int(flipped.sum()), n).pvalue > 1e-3


def test_a_flip_mirrors_columns():
    out = np.asarray(Flip()(jax.random.key(0), jnp.asarray(IMAGES)))
    same = (out == IMAGES).all((1, 2, 3))
    mirrored = (out == IMAGES[..., ::-1]).all((1, 2, 3))
    assert out.dtype == np.uint8
    assert (same ^ mirrored).all()
    assert 0 < same.sum() < N


@pytest.mark.parametrize("kind", [Flip, lambda **o: Shift(2, **o)], ids=["flip", "shift"])
def test_channels_last_is_channels_first_moved(kind):
    first = kind()(jax.random.key(3), jnp.asarray(IMAGES))
    last = kind(channels="last")(jax.random.key(3), jnp.moveaxis(jnp.asarray(IMAGES), 1, -1))
    np.testing.assert_array_equal(jnp.moveaxis(last, -1, 1), first)


def test_images_of_a_tree_move_together_and_the_rest_stays():
    x = {"image": jnp.asarray(IMAGES), "mask": jnp.asarray(IMAGES[:, 0]), "age": jnp.arange(N)}
    out = Shift(2)(jax.random.key(0), x)
    np.testing.assert_array_equal(out["image"][:, 0], out["mask"])
    np.testing.assert_array_equal(out["age"], x["age"])
    assert not np.array_equal(out["image"], x["image"])


# -- in a fit


def network():
    def apply(p, x):
        return x.reshape(len(x), -1) / 255.0 @ p["w"]

    return {"w": jnp.zeros((2 * SIDE * SIDE, 3))}, apply


def model():
    return px.Model(network(), px.priors.Gaussian(1.0), px.likelihoods.Categorical())


def fit(augment, data=None, **options):
    options = {"steps": 12, "batch_size": 8, "key": 0} | options
    method = px.MaximumAPosteriori(1e-2, schedule="constant")
    return px.fit(model(), data or (IMAGES, LABELS), method, augment=augment, **options)


def weights(posterior):
    return np.asarray(posterior.point.network["w"])


def seen(phase, data, steps):
    """The inputs of a phase's steps, made as the compiled loop makes them."""
    order, step = jax.random.split(jax.random.key(0))

    def one(t):
        index = loop._index(phase, data, t, order)
        return loop._batch(phase, data, index, jax.random.fold_in(step, t)).x

    return [np.asarray(jax.jit(one)(jnp.asarray(t))) for t in steps]


def ready_for(augment, batch_size, data=None):
    method = px.MaximumAPosteriori()
    ready = prepare(
        model(), data or (IMAGES, LABELS), method, Asked(None, 12, batch_size), augment=augment
    )
    return ready, method.phases(ready.model, ready.plan)[0]


@pytest.mark.parametrize("batch_size", [8, N])
def test_each_step_changes_its_own_minibatch(batch_size):
    ready, phase = ready_for(Shift(2), batch_size)
    plain, _ = ready_for(None, batch_size)
    a, b, again = seen(phase, ready.data, [0, N // batch_size, 0])
    assert a.dtype == np.uint8
    np.testing.assert_array_equal(a, again)
    assert not np.array_equal(a, seen(phase, plain.data, [0])[0])
    if batch_size == N:  # the same rows in the same order, changed in another way
        assert not np.array_equal(a, b)
    # what is on the device stays as it was given
    np.testing.assert_array_equal(ready.data.x[:N], IMAGES)


def test_uint8_images_become_numbers_in_the_step_only():
    n = 20_000
    images = np.zeros((n, 2, SIDE, SIDE), "uint8")
    ready, phase = ready_for((Flip(), Shift(1)), 8, (images, np.arange(n) % 3))
    assert ready.data.x.dtype == jnp.uint8
    key = jax.random.key(0)
    state = loop.first_state(phase, make_start(None, ready.model), ready.data, key)
    buffers = loop.make_buffers(loop.abstract_info(phase, state, ready.data, key), 16, 0)
    zero = jnp.zeros((), jnp.int32)
    fixed = (phase, ready.data, key, zero, zero, 1, 1)
    text = loop.run_chunk.lower(fixed, state, buffers).compile().compiled.as_text()
    assert f"u8[{n}," in text
    assert not re.search(rf"(f32|f16|bf16|s32)\[{n},2,", text)


def test_none_is_the_same_program():
    key, zero = jax.random.key(0), jnp.zeros((), jnp.int32)
    texts = []
    for augment in (None, Flip()):
        ready, phase = ready_for(augment, 8)
        state = loop.first_state(phase, make_start(None, ready.model), ready.data, key)
        buffers = loop.make_buffers(loop.abstract_info(phase, state, ready.data, key), 16, 0)
        fixed = (phase, ready.data, key, zero, zero, 1, 1)
        texts.append(loop.run_chunk.lower(fixed, state, buffers).as_text())
    assert "stablehlo.reverse" not in texts[0]
    assert "stablehlo.reverse" in texts[1]


def test_a_fit_is_repeated_resumed_and_continued_to_the_same_bits(tmp_path):
    class Killed(Exception):
        pass

    def kill(event):
        if event.step > 3:
            raise Killed

    both = [Flip(), Shift(2)]
    whole = fit(both)
    np.testing.assert_array_equal(weights(fit(both)), weights(whole))
    assert not np.array_equal(weights(fit(None)), weights(whole))
    often = px.Checkpoint(tmp_path / "a", every=0.0)
    with pytest.raises(Killed):
        fit(both, checkpoint=often, callbacks=[kill])
    np.testing.assert_array_equal(weights(fit(both, checkpoint=often)), weights(whole))
    half = fit(both, steps=5)
    np.testing.assert_array_equal(weights(fit(both, steps=7, resume=half)), weights(whole))


def test_a_checkpoint_knows_its_augmentation(tmp_path):
    fit(Shift(2), checkpoint=tmp_path / "a")
    for other in (None, Shift(1), [Shift(2), Flip()]):
        with pytest.raises(px.CheckpointError, match=r"its augment[.a-z]* is"):
            fit(other, checkpoint=tmp_path / "a")
    fit(None, checkpoint=tmp_path / "b")
    with pytest.raises(px.CheckpointError, match="its augment is None"):
        fit(Flip(), checkpoint=tmp_path / "b")


def test_steps_in_blocks_as_on_an_accelerator_are_the_same_steps(monkeypatch):
    one_by_one = weights(fit(Shift(2), steps=2 * loop.PERIOD))
    monkeypatch.setattr(loop, "block_length", lambda *_: loop.PERIOD)
    np.testing.assert_allclose(weights(fit(Shift(2), steps=2 * loop.PERIOD)), one_by_one, atol=1e-6)


def test_a_stream_is_augmented_too():
    stream = [(IMAGES, LABELS)]
    options = {"batch_size": None}
    plain, shifted = (weights(fit(a, stream, **options)) for a in (None, Shift(2)))
    assert not np.array_equal(plain, shifted)
    arrays = weights(fit(Shift(2), batch_size=N))
    np.testing.assert_allclose(shifted, arrays, rtol=1e-5, atol=1e-7)


def test_validation_and_prediction_see_the_images_as_they_are():
    def blank(key, x):
        return jnp.zeros_like(x)

    posterior = fit(blank, validation=(IMAGES, LABELS))
    plain = fit(None, validation=(IMAGES, LABELS))
    # nothing to learn from blank images but the prior: the weights stay zero, and all is log 3
    np.testing.assert_array_equal(weights(posterior), 0.0)
    np.testing.assert_allclose(posterior.history["validation_nll"], np.log(3), rtol=1e-5)
    assert plain.history["validation_nll"][-1] < np.log(3) - 0.01
    started = px.fit(
        model(), (IMAGES, LABELS), px.MaximumAPosteriori(), steps=1, init=plain, augment=blank
    )
    np.testing.assert_allclose(started.predict(IMAGES).mean, plain.predict(IMAGES).mean, atol=0.05)


def test_a_function_of_ones_own_sees_the_whole_tree():
    def noisy(key, x):
        image, side = x
        return image + jax.random.normal(key, image.shape), side

    def apply(p, x):
        return x.reshape(len(x), -1) @ p["w"]

    x = IMAGES / 255, np.ones(N, "float32")
    counted = px.Model(
        ({"w": jnp.zeros((2 * SIDE * SIDE, 1))}, apply), None, px.likelihoods.Poisson(exposure=True)
    )
    for augment in (noisy, [Shift(1), noisy]):
        posterior = px.fit(counted, (x, LABELS), px.BayesByBackprop(), steps=2, augment=augment)
        assert np.isfinite(posterior.history["nll"]).all()


BAD = {
    "not callable": (3, TypeError, "augment must be one of px.augment, a function"),
    "a class": (Flip, TypeError, r"augment is the class Flip; call it: Flip\(…\)"),
    "an empty list": ([], TypeError, r"augment must be .* got \[\]"),
    "None in a list": ([None], TypeError, "augment: None among several"),
    "other shape": (lambda k, x: x[:, 0], ValueError, r"augment must keep shapes.*\(8, 6, 6\)"),
    "other type": (lambda k, x: x / 255, ValueError, "augment must keep .*uint8.*float32"),
    "other arguments": (lambda x: x, ValueError, "augment: .*takes 1 positional argument"),
    "too far": (Shift(6), ValueError, r"augment: Shift\(6\) moves images of \(6, 6\) out"),
    "fill": (Shift(1, fill=0.5), ValueError, r"augment: Shift\(fill=0.5\) is no value of uint8"),
    "fill too large": (Shift(1, fill=256), ValueError, r"augment: Shift\(fill=256\) is no value"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_augmentations(name, monkeypatch):
    monkeypatch.setattr(loop, "first_state", lambda *_: pytest.fail("compiled before refusing"))
    augment, kind, message = BAD[name]
    with pytest.raises(kind, match=message) as caught:
        fit(augment)
    assert "\n" not in str(caught.value)


def test_bad_settings_and_data():
    for make, message in [
        (lambda: Shift(0), "pixels must be a whole number"),
        (lambda: Shift(1, fill=np.nan), "fill must be a finite number"),
        (lambda: Flip(channels="middle"), "channels must be one of 'first', 'last', got 'middle'"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()
    flat = IMAGES.reshape(N, -1)
    with pytest.raises(ValueError, match=r"augment: Flip needs images.*got x of shape \(8, 72\)"):
        fit(Flip(), (flat, LABELS))
    with pytest.raises(ValueError, match=r"augment: .*channels last; use Shift\(…, channels="):
        fit(Shift(1), (np.moveaxis(IMAGES, 1, -1), LABELS))


@pytest.mark.parametrize("method", [px.NUTS(), px.ImportanceSampling()])
def test_methods_that_need_all_data_refuse(method):
    with pytest.raises(ValueError, match=r"augment: .* needs the same data .*px.BayesByBackprop"):
        px.fit(model(), (IMAGES, LABELS), method, augment=Flip())
