"""Networks, files and checkpoints: what was once mistaken for something else, or refused."""

import subprocess
import sys
import types

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import posterax as px
from posterax._util.tree import named_leaves
from posterax.networks import as_network
from posterax.networks.parts import select
from posterax.posteriors import Draws, MeanFieldGaussian, Point
from posterax.predictive import Targets

pytestmark = pytest.mark.usefixtures("hasty_compiler")
rng = np.random.default_rng(0)
X = rng.normal(size=(16, 4)).astype("float32")
GAUSSIAN, CLASSES = px.likelihoods.Gaussian(0.1), px.likelihoods.Categorical()
FIRST, LAST = "layers.0.*", "layers.1.*"


def mlp(key=0):
    return px.networks.MLP(4, 4, (4,), key=key)  # two layers of the same shape


def model_of(network=None, prior=None, **options):
    return px.Model(mlp() if network is None else network, prior, GAUSSIAN, **options)


def posterior_of(model):
    """A posterior at the network's own weights, without a fit."""
    model = model.for_targets((4,), jnp.float32)
    rho = jax.tree.map(lambda a: jnp.full_like(a, -3.0), model.bayesian(model.parameters))
    state, targets = model.network.state, Targets((4,), (4,))
    return MeanFieldGaussian(model, state, targets, mu=model.parameters, rho=rho)


def point_of(model):
    model = model.for_targets((4,), jnp.float32)
    return Point(model, model.network.state, Targets((4,), (4,)), point=model.parameters)


def saved(posterior, folder):
    posterior.save(folder / "p.px")
    return folder / "p.px"


def assert_same(a, b):
    """The same numbers: means, deviations, and weights that stay as they are."""
    numbers = [(p.mu, p.rho, p.model.network.frozen()) for p in (a, b)]
    for one, two in zip(*map(jax.tree.leaves, numbers), strict=True):
        np.testing.assert_array_equal(one, two)


class TestOtherModels:
    @pytest.mark.parametrize(
        ("first", "second", "words"),
        [
            (lambda k: {"where": LAST, "rest": "frozen"}, None, "its fixed weights is"),
            ({"where": LAST}, {"where": FIRST}, "its where is"),
            ({"where": LAST, "rest": "frozen"}, {"where": FIRST, "rest": "frozen"}, "its where"),
        ],
        ids=["fixed", "where", "where, frozen"],
    )
    def test_a_checkpoint_knows_frozen_weights_and_where(self, first, second, words, tmp_path):
        def fit(options, key):
            model = model_of(mlp(key), **options)
            method = px.MaximumAPosteriori()
            return px.fit(model, (X, X), method, steps=2, key=0, checkpoint=tmp_path)

        given = first(0) if callable(first) else first
        fit(given, 0)
        fit(given, 0)  # the same one goes on
        with pytest.raises(px.CheckpointError, match=words):
            fit(second or given, 0 if second else 7)

    def test_a_checkpoint_knows_the_base_of_additions(self, tmp_path):
        def fit(key):
            model = model_of(px.networks.low_rank(mlp(key), rank=1, key=0))
            px.fit(model, (X, X), px.MaximumAPosteriori(), steps=2, key=0, checkpoint=tmp_path)

        fit(0)
        with pytest.raises(px.CheckpointError, match="its fixed weights is"):
            fit(7)

    @pytest.mark.parametrize("rest", ["point", "frozen"])
    def test_a_file_knows_where(self, rest, tmp_path):
        posterior = posterior_of(model_of(where=LAST, rest=rest))
        path = saved(posterior, tmp_path)
        again = px.load(path, model=model_of(mlp(3), where=LAST, rest=rest))
        assert_same(again, posterior)
        other = {"point": "frozen", "frozen": "point"}[rest]
        for options in ({"where": FIRST, "rest": rest}, {}, {"where": LAST, "rest": other}):
            with pytest.raises(px.CheckpointError, match="other Bayesian weights"):
                px.load(path, model=model_of(**options))

    def test_a_file_of_additions_knows_its_base(self, tmp_path):
        def model(key):
            return model_of(px.networks.low_rank(mlp(key), rank=1, key=0))

        path = saved(posterior_of(model(0)), tmp_path)
        px.load(path, model=model(0))
        with pytest.raises(px.CheckpointError, match="other frozen weights"):
            px.load(path, model=model(5))

    def test_files_of_before_still_load(self, tmp_path, monkeypatch):
        """They had a fingerprint that told float widths apart, and fewer entries."""
        from posterax.files import saved as files

        model = model_of(where=LAST, rest="frozen")
        describe = files.describe_model

        def older(model, arrays):
            header = describe(model, arrays)
            del header["bayesian"], header["content"]
            return header | {"fingerprint": model.network.fingerprint(widths=True)}

        monkeypatch.setattr(files, "describe_model", older)
        path = saved(posterior_of(model), tmp_path)
        px.load(path)
        px.load(path, model=model)


class TestWhichWeights:
    def test_biases_of_convolutions_are_biases(self):
        network = px.networks.LeNet5(image_size=12, key=0)
        params = as_network(network).params
        additions = px.networks.low_rank(network, rank=1, key=0).params
        assert not [name for name in additions if "bias" in name]
        chosen = named_leaves(select(params, "*.weight"))
        assert {name for name, c in chosen.items() if c} == set(additions)

    def test_every_pattern_of_several_must_match(self):
        with pytest.raises(ValueError, match=r"where='layers.9.\*' matches no weight; the weights"):
            model_of(where=[LAST, "layers.9.*"])

    def test_a_weight_called_value(self):
        params = {"attention": {"query": jnp.ones((4, 4)), "value": jnp.ones((4, 4))}}
        network = params, lambda p, x: x @ p["attention"]["query"] @ p["attention"]["value"]
        model = model_of(network, where="attention.value")
        assert list(named_leaves(model.parameters.network)) == [
            "attention.query",
            "attention.value",
        ]
        assert model.bayesian_size == 16

    def test_frozen_needs_where(self):
        with pytest.raises(ValueError, match="rest='frozen' needs where="):
            model_of(rest="frozen")

    def test_a_summary_counts_frozen_weights(self):
        text = model_of(where=LAST, rest="frozen").summary()
        assert "20 more weights are frozen" in text
        assert "frozen" not in model_of().summary()


class TestAugment:
    def test_targets_of_every_pixel_do_not_move(self):
        images = rng.integers(0, 256, (4, 8, 8)).astype("uint8")
        network = px.networks.UNet(1, 2, width=2, levels=1, key=0)
        model = px.Model(network, None, CLASSES)
        for augment in (px.augment.Flip(), [px.augment.Shift(1)], [[px.augment.Flip()]]):
            with pytest.raises(ValueError, match="moves the images and not their targets"):
                px.fit(model, (images, images % 2), px.MaximumLikelihood(), augment=augment)
        stream = [(images, images % 2)]
        with pytest.raises(ValueError, match="moves the images and not their targets"):
            px.fit(model, stream, px.MaximumLikelihood(), augment=px.augment.Flip())

    @pytest.mark.parametrize("masked", [False, True])
    def test_sequences_are_no_images(self, masked):
        values, mask = X.reshape(16, 2, 2), np.ones((16, 2), bool)
        model = px.Model(px.networks.Recurrent(2, 1, 3, key=0), None, GAUSSIAN)
        data = ((values, mask) if masked else values), X[:, 0]
        with pytest.raises(ValueError, match="Flip is for images, and x holds sequences"):
            px.fit(model, data, px.MaximumLikelihood(), augment=px.augment.Flip())


WIDTHS = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
import posterax as px
wide, narrow = sys.argv[1:]
posterior = px.load(narrow)
assert posterior.mu.network.layers[1].weight.dtype == "float32"
print(np.asarray(posterior.mu.network.layers[1].weight).sum())
model = px.Model(px.networks.MLP(4, 4, (4,), key=0), None, px.likelihoods.Gaussian(0.1),
                 where="layers.1.*", rest="frozen")
px.load(narrow, model=model)
posterior = px.posteriors.Point(
    (m := model.for_targets((4,), "float64")), (), posterior.targets, point=m.parameters
)
posterior.save(wide)
"""


def test_float_width_is_no_part_of_a_model(tmp_path):
    posterior = posterior_of(model_of(where=LAST, rest="frozen"))
    narrow, wide = saved(posterior, tmp_path), tmp_path / "wide.px"
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", WIDTHS, wide, narrow],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    total = float(posterior.mu.network.layers[1].weight.sum())
    assert float(done.stdout) == pytest.approx(total, rel=1e-6)
    loaded = px.load(wide)
    assert {a.dtype for a in jax.tree.leaves(loaded.model.network.fixed)} == {np.dtype("float32")}
    assert loaded.point.network.layers[1].weight.dtype == "float32"


class TestPriors:
    def test_trained_in_a_part(self):
        prior = px.priors.ByPart({LAST: px.priors.Trained(0.2)}, px.priors.Trained(0.5, 0.1))
        model = model_of(prior=prior)
        for layer, trained, relative in zip(
            model.priors.network.layers, mlp().layers, (0.5, 0.2), strict=True
        ):
            np.testing.assert_array_equal(layer.weight.loc, trained.weight)
            size = np.maximum(relative * np.abs(trained.weight), {0.5: 0.1, 0.2: 0.01}[relative])
            np.testing.assert_allclose(layer.weight.scale, size, rtol=1e-6)
        assert np.isfinite(model.log_joint(model.parameters, X, X))

    def test_bayes_by_backprop_needs_a_prior(self):
        with pytest.raises(ValueError, match=r"needs weights with a prior.*px\.MaximumLikelihood"):
            px.fit(model_of(prior=px.priors.Flat()), (X, X), px.BayesByBackprop(), steps=1)

    def test_points_within_a_part_that_is_not_frozen(self, tmp_path):
        flat = px.priors.ByPart({"*.bias": px.priors.Flat()})
        first = posterior_of(model_of(prior=flat, where=LAST, rest="frozen"))
        model = model_of(first.model.network, first.as_prior())
        second = posterior_of(model)
        loaded = px.load(saved(second, tmp_path))
        assert loaded.rho.network.layers[1].bias is None
        assert_same(loaded, second)

    def test_fan_in_of_attention_and_embeddings(self):
        class Flax(nnx.Module):
            def __init__(self):
                rngs = nnx.Rngs(0)
                self.table = nnx.Embed(50, 4, rngs=rngs)
                self.attention = nnx.MultiHeadAttention(2, 4, decode=False, rngs=rngs)
                self.dense = nnx.Linear(4, 1, rngs=rngs)

        fan_in = as_network(Flax()).fan_in
        params = named_leaves(as_network(Flax()).params)
        found = {name: fan_in(w.shape, name) for name, w in params.items()}
        assert found == {
            "table.embedding": 1,  # (50, 4)
            "attention.query.kernel": 4,  # (4, 2, 2)
            "attention.key.kernel": 4,
            "attention.value.kernel": 4,
            "attention.query.bias": 1,  # (2, 2)
            "attention.key.bias": 1,
            "attention.value.bias": 1,
            "attention.out.kernel": 4,  # (2, 2, 4)
            "attention.out.bias": 1,
            "dense.kernel": 4,
            "dense.bias": 1,
        }
        options = {"width": 4, "heads": 2, "layers": 1, "vocabulary": 9, "length": 6}
        network = px.networks.Transformer(None, 2, **options, key=0)
        prior = px.priors.Gaussian(3.0, fan_in=True)
        for options in ({}, {"where": "*", "rest": "frozen"}):
            priors = px.Model(network, prior, CLASSES, **options).priors.network
            assert priors.embedding.weight.scale == priors.position.scale == 3.0
            assert priors.head.weight.scale == pytest.approx(1.5)


class TestGiven:
    def test_an_equinox_module_with_a_function(self):
        module = eqx.nn.MLP(4, 4, 3, 1, key=jax.random.key(0))
        model = model_of((module, lambda m, x: jax.vmap(m)(x)))
        outputs = model.apply(model.parameters, (), X, None, training=False)[0]
        np.testing.assert_allclose(outputs, jax.vmap(module)(X), rtol=1e-6)
        assert model.bayesian_size == 4 * 3 + 3 + 3 * 4 + 4

    def test_batch_normalisation_over_another_axis(self):
        class Normed(eqx.Module):
            norm: eqx.nn.BatchNorm

            def __init__(self, axis):
                self.norm = eqx.nn.BatchNorm(4, axis, mode="batch")

            def __call__(self, x, state):
                return self.norm(x, state)

        make = eqx.nn.make_with_state(Normed)
        model_of(make("batch"))
        with pytest.raises(ValueError, match=r'norm normalises over.*axis_name="batch"'):
            model_of(make("i"))
        with pytest.raises(TypeError, match=r"pass \(module, state\)"):
            model_of(make("batch")[0])

    def test_modules_of_other_libraries(self, monkeypatch):
        with pytest.raises(TypeError, match=r"Flax Linen: write \(params, apply\)"):
            model_of(nn.Dense(4))
        module = type("Module", (), {})
        torch = types.SimpleNamespace(nn=types.SimpleNamespace(Module=module))
        monkeypatch.setitem(sys.modules, "torch", torch)
        with pytest.raises(TypeError, match=r"of PyTorch: .*px\.networks\.from_torch"):
            model_of(module())

    def test_tokens_outside_the_vocabulary(self):
        options = {"width": 4, "heads": 2, "layers": 1, "vocabulary": 9, "length": 6}
        network = px.networks.Transformer(None, 2, **options, key=0)
        model = px.Model(network, None, CLASSES, where="head.*", rest="frozen")
        tokens, mask = np.full((4, 3), 8), np.ones((4, 3), bool)
        tokens[1, 2], mask[1, 2] = 9, False
        assert model.output_shape((tokens, mask)) == (4, 2)
        with pytest.raises(ValueError, match="token 9; with vocabulary=9 tokens go from 0 to 8"):
            px.fit(model, (tokens, np.zeros(4, int)), px.MaximumLikelihood())


class Flax(nnx.Module):
    def __init__(self):
        self.norm = nnx.BatchNorm(4, rngs=nnx.Rngs(0))
        self.dense = nnx.Linear(4, 4, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return self.dense(self.norm(x))


class TestNetworkOfAPosterior:
    """``posterior.network()`` computes what the posterior predicts, in the user's own form."""

    @pytest.mark.parametrize("rest", [{}, {"where": LAST, "rest": "frozen"}], ids=["all", "last"])
    def test_equinox(self, rest):
        method = px.MaximumLikelihood(0.1)
        posterior = px.fit(model_of(**rest), (X, X), method, steps=3, key=0)
        network = posterior.network()
        assert isinstance(network, px.networks.MLP)
        np.testing.assert_allclose(network(X), posterior.predict(X).mean, atol=1e-5)
        kept = model_of(network, where=LAST, rest="frozen")
        np.testing.assert_array_equal(kept.network.fixed.layers[0].weight, network.layers[0].weight)
        around = model_of(network, px.priors.Trained()).priors.network.layers[0].weight.loc
        np.testing.assert_array_equal(around, network.layers[0].weight)

    def test_flax_with_state(self):
        model = model_of(Flax())
        model = eqx.tree_at(
            lambda m: m.network.state, model, jax.tree.map(lambda a: a + 0.5, model.network.state)
        )
        posterior = point_of(model)
        network = posterior.network()
        assert isinstance(network, Flax)
        network.eval()
        np.testing.assert_allclose(network(X), posterior.predict(X).mean, atol=1e-5)
        assert px.Model(network, None, GAUSSIAN).bayesian_size == model.bayesian_size

    def test_plain_and_additions(self):
        plain = {"w": jnp.asarray(X[:4])}, lambda p, x: x @ p["w"]
        params, apply = point_of(model_of(plain)).network()
        np.testing.assert_allclose(apply(params, X), X @ X[:4], rtol=1e-5)
        added = px.networks.low_rank(mlp(), rank=1, key=0)
        added = eqx.tree_at(lambda n: n.params, added, jax.tree.map(jnp.ones_like, added.params))
        merged = point_of(model_of(added)).network()
        np.testing.assert_allclose(merged.layers[0].weight, mlp().layers[0].weight + 1, rtol=1e-6)

    def test_means_or_one_draw(self):
        gaussian = posterior_of(model_of())
        mean = gaussian.network().layers[0].weight
        np.testing.assert_array_equal(mean, gaussian.mu.network.layers[0].weight)
        assert not np.array_equal(gaussian.network(key=0).layers[0].weight, mean)
        model = gaussian.model
        stacked = jax.tree.map(lambda a: jnp.stack([a, a + 1])[None], gaussian.mu)
        draws = Draws(model, (), gaussian.targets, draws=stacked)
        with pytest.raises(ValueError, match=r"network\(key=0\) gives one draw's"):
            draws.network()
        one = draws.network(key=0).layers[0].weight
        assert any(np.array_equal(one, mean + i) for i in (0, 1))
