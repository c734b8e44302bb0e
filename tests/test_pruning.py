"""Pruning: what goes, what stays, and that what stays is a posterior like any other."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import posterax as px
from posterax._util.tree import named_leaves
from posterax.infer.laplace.curvature import layout
from posterax.infer.variational import estimators
from posterax.model import Parameters
from posterax.networks.sparse import SparseNetwork
from posterax.posteriors import (
    Draws,
    FullGaussian,
    GaussianMixture,
    LaplaceGaussian,
    LowRankGaussian,
    MeanFieldGaussian,
    Point,
    Radial,
)
from posterax.posteriors.base import map_samples
from posterax.predictive import Targets
from posterax.priors import is_prior

CLASSES = Targets((), ())
ONE = Targets((), (1,))
TWO = Targets((2,), (2,))
X = np.random.default_rng(5).normal(size=(7, 3)).astype("float32")


def mlp(hidden=(8, 6), **options):
    return px.networks.MLP(3, 2, hidden, key=0, **options)


def model_of(network=None, prior=None, likelihood=None, targets=CLASSES, **options):
    network = mlp() if network is None else network
    likelihood = px.likelihoods.Categorical() if likelihood is None else likelihood
    model = px.Model(network, prior, likelihood, **options)
    return model.for_targets(targets.inner, jnp.float32)


def random_like(tree, seed, low, high):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda a: rng.uniform(low, high, a.shape).astype("float32"), tree)


def mean_field(model=None, targets=CLASSES, seed=0):
    model = model_of() if model is None else model
    mu, rho = random_like(model.parameters, seed, -1, 1), random_like(model.parameters, 9, -4, 0)
    return MeanFieldGaussian(model, model.network.state, targets, mu=mu, rho=model.bayesian(rho))


def draws_of(model=None, targets=CLASSES):
    model = model_of() if model is None else model
    many = jax.tree.map(lambda a: np.zeros((1, 4, *a.shape), "float32"), model.parameters)
    return Draws(model, model.network.state, targets, draws=random_like(many, 3, -1, 1))


def flat(tree):
    return np.concatenate([np.ravel(a) for a in jax.tree.leaves(tree)])


def kept_of(posterior):
    """Whether each entry of the whole network is kept, as one vector."""
    network = posterior.model.network
    whole = jax.tree.map(lambda a: np.ones(a.shape, bool), network.dense().params)
    if isinstance(network, SparseNetwork):
        whole = network.inner(jax.tree.map(np.ones_like, network.params))
    return flat(whole).astype(bool)


def whole_means(posterior):
    network, mean = posterior.model.network, posterior.mu.network
    return flat(network.inner(mean) if isinstance(network, SparseNetwork) else mean)


def sigma_of(rho):
    return jax.tree.map(lambda r: np.log1p(np.exp(np.asarray(r))), rho)


def forward(network, x, activation=lambda z: np.maximum(z, 0)):
    """An MLP in NumPy, of ReLUs if nothing else is said."""
    *hidden, last = network.layers
    for layer in hidden:
        x = activation(x @ np.asarray(layer.weight).T + np.asarray(layer.bias))
    return x @ np.asarray(last.weight).T + np.asarray(last.bias)


# one program in the place of one for every operation and shape
log_prior = eqx.filter_jit(lambda posterior, model: model.log_prior(posterior.mu))
log_prob = eqx.filter_jit(lambda posterior, at: posterior.log_prob(at))
moments = eqx.filter_jit(lambda posterior: posterior.moments())


def ratios(posterior):
    """10 log₁₀(|μ| / softplus(ρ)) in NumPy."""
    mu, rho = flat(posterior.mu.network), flat(posterior.rho.network).astype(np.float64)
    return 10 * np.log10(np.abs(mu) / np.logaddexp(0, rho))


@pytest.mark.usefixtures("hasty_compiler")
class TestWhatGoes:
    def test_ratio_by_hand(self):
        posterior = mean_field()
        found = px.pruning.signal_to_noise(posterior)
        np.testing.assert_allclose(
            np.concatenate([np.ravel(a) for a in found.values()]), ratios(posterior), atol=1e-4
        )

    @pytest.mark.parametrize("fraction", [0.0, 0.31, 0.5, 0.98, 1.0])
    def test_fraction(self, fraction):
        posterior = mean_field()
        pruned = px.prune(posterior, fraction)
        expected = np.ones(100, bool)
        expected[np.argsort(ratios(posterior))[: round(100 * fraction)]] = False
        np.testing.assert_array_equal(kept_of(pruned), expected)
        assert px.pruning.report(pruned).fraction == pytest.approx(fraction)

    def test_equal_ratios_go_in_order(self):
        posterior = mean_field()
        same = jax.tree.map(lambda a: np.full(a.shape, -2.0, "float32"), posterior.rho)
        ones = jax.tree.map(lambda a: np.ones(a.shape, "float32"), posterior.mu)
        posterior = MeanFieldGaussian(posterior.model, (), CLASSES, mu=ones, rho=same)
        for count in (1, 37, 99):
            kept = kept_of(px.prune(posterior, count / 100))
            np.testing.assert_array_equal(kept, np.arange(100) >= count)

    def test_threshold_in_decibels(self):
        posterior = mean_field()
        pruned = px.prune(posterior, threshold=3.0)
        np.testing.assert_array_equal(kept_of(pruned), ratios(posterior) >= 3.0)
        assert 10 < kept_of(pruned).sum() < 90

    def test_by_layer(self):
        posterior = mean_field()
        pruned = px.prune(posterior, 0.5, scope="layer")
        kept, at = kept_of(pruned), 0
        for size in (32, 54, 14):  # weights and biases of each
            layer = slice(at, at + size)
            order = np.argsort(ratios(posterior)[layer])
            expected = np.ones(size, bool)
            expected[order[: size // 2]] = False
            np.testing.assert_array_equal(kept[layer], expected)
            at += size

    def test_only_where(self):
        report = px.pruning.report(px.prune(mean_field(), 0.5, where="*.weight"))
        assert report.kept["layers.0.bias"] == 8
        assert sum(report.kept[f"layers.{i}.weight"] for i in range(3)) == 42

    def test_by_magnitude(self):
        posterior = mean_field()
        pruned = px.prune(posterior, 0.4, by="magnitude")
        order = np.argsort(np.abs(flat(posterior.mu.network)))
        np.testing.assert_array_equal(np.sort(order[:40]), np.flatnonzero(~kept_of(pruned)))

    def test_twice(self):
        posterior = mean_field()
        twice, once = px.prune(px.prune(posterior, 0.5), 0.8), px.prune(posterior, 0.8)
        np.testing.assert_array_equal(kept_of(twice), kept_of(once))
        np.testing.assert_array_equal(flat(twice.rho), flat(once.rho))
        np.testing.assert_array_equal(whole_means(twice), whole_means(once))

    def test_layers_after_all_at_once(self):
        """A layer that lost more than the share stays as it is."""
        pruned = px.prune(mean_field(), 0.5)
        layers = px.prune(pruned, 0.5, scope="layer")
        before, after = (px.pruning.report(p) for p in (pruned, layers))
        for i in range(3):
            names = [f"layers.{i}.{kind}" for kind in ("weight", "bias")]
            size, had, has = (
                sum(part[n] for n in names) for part in (before.sizes, before.kept, after.kept)
            )
            assert has == min(had, size - round(size / 2))
        assert before.kept != after.kept

    def test_the_marks_of_the_picture_are_where_it_cuts(self):
        from matplotlib.figure import Figure

        posterior = mean_field(model_of(likelihood=px.likelihoods.Gaussian("learned")))
        for start in (posterior, px.prune(posterior, 0.5)):
            axes = Figure().subplots()
            px.plot.signal_to_noise(axes, start, fractions=(0.3, 0.8))
            marks = [line.get_xdata()[0] for line in axes.lines[1:]]
            expected = [np.sort(ratios(posterior))[n] for n in (30, 80)]
            if start is not posterior:
                del expected[0]  # gone already
            np.testing.assert_allclose(marks, expected, atol=1e-4)


def test_tolerance():
    """y = w·x on unit inputs: to lose weight i costs wᵢ² / 2s²N nats, and no more than that."""
    w = np.array([0.1, 0.7, 0.3, 0.9, 0.5], "float32")
    model = model_of(
        ({"w": w[:, None]}, lambda p, x: x @ p["w"]),
        px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.5), ONE,
    )  # fmt: skip
    rho = jax.tree.map(lambda a: np.full(a.shape, -12.0, "float32"), model.parameters)
    posterior = MeanFieldGaussian(model, (), ONE, mu=Parameters({"w": w[:, None]}, {}), rho=rho)
    x = np.eye(5, dtype="float32")
    cost = np.cumsum(np.sort(w) ** 2) / (2 * 0.25 * 5)
    for tolerance, count in ((cost[1] + 1e-3, 2), (cost[2] - 1e-3, 2), (cost[3] + 1e-3, 4)):
        pruned = px.prune(posterior, tolerance=tolerance, validation=(x, w), samples=4)
        report = px.pruning.report(pruned)
        assert report.kept["w"] == 5 - count
        curve = dict(report.curve)
        assert curve[0.0] == pytest.approx(-stats.norm(0, 0.5).logpdf(0), abs=1e-4)
        assert curve[report.fraction] - curve[0.0] == pytest.approx(cost[count - 1], abs=1e-4)


@pytest.mark.usefixtures("hasty_compiler")
class TestWhatStays:
    def test_draws_are_those_with_zeros(self):
        posterior = draws_of()
        mean, std = moments(posterior)
        ratio = np.abs(flat(mean.network)) / flat(std.network)
        pruned = px.prune(posterior, 0.6)
        kept = np.ones(100, bool)
        kept[np.argsort(ratio)[:60]] = False
        np.testing.assert_array_equal(kept_of(pruned), kept)
        for i in range(4):
            before, after = (
                jax.tree.map(lambda a, i=i: np.asarray(a)[0, i], p.draws.network)
                for p in (posterior, pruned)
            )
            found = flat(pruned.model.network.inner(after))
            np.testing.assert_array_equal(found, flat(before) * kept)

    def test_a_draw_is_one_of_the_whole_network_with_zeros(self):
        posterior = mean_field()
        pruned = px.prune(posterior, 0.7)
        kept = kept_of(pruned)
        np.testing.assert_array_equal(whole_means(pruned), flat(posterior.mu.network) * kept)
        np.testing.assert_array_equal(flat(pruned.rho), flat(posterior.rho)[kept])

        @eqx.filter_jit
        def three(posterior):
            ids = posterior.antithetic(jax.random.key(1), 3).ids
            return jax.vmap(posterior.parameters)(ids), posterior.evaluate(ids, X)[0]

        params, outputs = three(pruned.bare())
        network = pruned.model.network
        for i in range(3):
            dense = network.inner(jax.tree.map(lambda a, i=i: np.asarray(a)[i], params.network))
            assert np.all(flat(dense)[~kept] == 0)
            assert np.all(flat(dense)[kept] != 0)
            np.testing.assert_allclose(outputs[i], forward(dense, X), rtol=1e-4, atol=1e-5)

    def test_the_density_is_of_the_weights_kept(self):
        pruned = px.prune(mean_field(), 0.7)
        sigma = np.logaddexp(0, flat(pruned.rho).astype(np.float64))
        expected = stats.norm(0, sigma).logpdf(0.1).sum()
        moved = jax.tree.map(lambda m: m + 0.1, pruned.mu)
        assert float(log_prob(pruned.bare(), moved)) == pytest.approx(expected, rel=1e-4)

    def test_the_network_given_back_is_whole(self):
        pruned = px.prune(mean_field(), 0.7)
        network = pruned.model.network.rebuild(pruned.mu.network, ())
        assert isinstance(network, px.networks.MLP)
        assert sum(np.sum(np.asarray(a) == 0) for a in jax.tree.leaves(network)) == 70

    def test_correlated_weights_keep_their_marginal(self):
        model = model_of(mlp((2,)))
        size = model.bayesian_size
        root = np.tril(np.random.default_rng(1).normal(size=(size, size))).astype("float32")
        factor = root[:, :2]
        mu, sigma = (random_like(model.parameters, i, 0.1, 1) for i in (0, 1))
        common = (model, (), CLASSES)
        full = FullGaussian(*common, mu=mu, cholesky=root)
        low = LowRankGaussian(*common, mu=mu, sigma=sigma, factor=factor)
        for posterior, covariance in (
            (full, root @ root.T),
            (low, np.diag(flat(sigma) ** 2) + factor @ factor.T),
        ):
            pruned = px.prune(posterior, 0.5)
            kept = kept_of(pruned)
            gone = np.argsort(np.abs(flat(mu)) / np.sqrt(np.diag(covariance)))[: round(size / 2)]
            np.testing.assert_array_equal(np.flatnonzero(~kept), np.sort(gone))
            inside = covariance[np.ix_(kept, kept)].astype(np.float64)
            point = flat(mu)[kept] + 0.3
            expected = stats.multivariate_normal(flat(mu)[kept], inside).logpdf(point)
            moved = jax.tree.map(lambda m: m + np.float32(0.3), pruned.mu)
            assert float(log_prob(pruned.bare(), moved)) == pytest.approx(expected, rel=1e-3)

    def test_laplace_mixture_and_point(self):
        base = mean_field(model_of(mlp((2,))))
        common = (base.model, (), CLASSES)
        leaves = {f"network.layers.{i}.{k}": None for i in range(2) for k in ("weight", "bias")}
        sigma = dict(zip(leaves, jax.tree.leaves(sigma_of(base.rho)), strict=True))
        blocks = {n: {"leaves": n, "deviation": s} for n, s in sigma.items()}
        laplace = LaplaceGaussian(
            *common, mu=base.mu, blocks=blocks, linearised=True, prior_factors={}
        )
        pruned, same = px.prune(laplace, 0.5), px.prune(base, 0.5)
        np.testing.assert_array_equal(kept_of(pruned), kept_of(same))
        deviations = [pruned.blocks[name]["deviation"] for name in leaves]
        np.testing.assert_array_equal(flat(deviations), flat(sigma_of(same.rho)))
        two = jax.tree.map(lambda a: np.stack([a, a]), (base.mu, base.rho))
        mixture = px.prune(GaussianMixture(*common, mu=two[0], rho=two[1]), 0.5)
        second = jax.tree.map(lambda a: np.asarray(a)[1], mixture.mu)
        np.testing.assert_array_equal(flat(second), flat(same.mu))
        point = px.prune(Point(*common, point=base.mu), 0.5, by="magnitude")
        assert np.abs(flat(point.point)).min() >= np.median(np.abs(flat(base.mu)))

    def test_points_stay(self):
        model = model_of(mlp(), px.priors.Gaussian(1.0), where="layers.1.*")
        pruned = px.prune(mean_field(model), 0.9)
        kept = px.pruning.report(pruned).kept
        assert kept["layers.0.weight"] == 24
        assert kept["layers.1.weight"] < 10
        assert pruned.model.bayesian_size == round(0.1 * 54)


def student_t(w, a, b):
    """log ∫ N(w | 0, s²) InverseGamma(s² | a, b) ds², all weights with one s²."""
    if not w.size:
        return 0.0
    return stats.multivariate_t(shape=np.eye(w.size) * b / a, df=2 * a).logpdf(w)


@pytest.mark.usefixtures("hasty_compiler")
class TestPriors:
    def test_fan_in_is_of_the_whole_array(self):
        model = model_of(mlp((4,)), px.priors.Gaussian(2.0, fan_in=True))
        pruned = px.prune(mean_field(model), 0.5)
        inputs = {"layers.0.weight": 3, "layers.1.weight": 4}
        scales = {name: 2 / np.sqrt(inputs.get(name, 1)) for name in px.pruning.report(pruned).kept}
        leaves = zip(scales.values(), jax.tree.leaves(pruned.mu.network), strict=True)
        expected = sum(stats.norm(0, scale).logpdf(w).sum() for scale, w in leaves)
        assert float(log_prior(pruned.bare(), pruned.model)) == pytest.approx(expected, rel=1e-5)
        # the same of a model that is made of the sparse network
        again = px.Model(
            pruned.model.network, px.priors.Gaussian(2.0, fan_in=True), px.likelihoods.Categorical()
        )
        assert float(log_prior(pruned.bare(), again)) == pytest.approx(expected, rel=1e-5)

    def test_one_for_each_weight(self):
        earlier = mean_field(model_of(mlp((4,))), seed=2)
        model = model_of(mlp((4,)), px.priors.PerWeight(earlier.mu, sigma_of(earlier.rho)))
        pruned = px.prune(mean_field(model), 0.5)
        kept = kept_of(pruned)
        loc, scale = flat(earlier.mu)[kept], flat(sigma_of(earlier.rho))[kept]
        expected = stats.norm(loc, scale).logpdf(flat(pruned.mu)).sum()
        assert float(log_prior(pruned.bare(), pruned.model)) == pytest.approx(expected, rel=1e-5)
        after = px.priors.PerWeight(pruned.mu, sigma_of(pruned.rho))  # as_prior()
        following = px.Model(pruned.model.network, after, px.likelihoods.Categorical())
        sigma = flat(after.scale)
        expected = stats.norm(0, sigma).logpdf(0).sum()
        assert float(log_prior(pruned.bare(), following)) == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("relevance", [pytest.param(False, marks=pytest.mark.slow), True])
    def test_learned_width(self, relevance):
        prior = px.priors.Hierarchical(2.0, 0.7, relevance=relevance)
        model = model_of(mlp((4,)), prior)
        pruned = px.prune(px.prune(mean_field(model), 0.3), 0.6)  # groups are kept twice
        masks = pruned.model.network.masks()
        whole = pruned.model.network.inner(pruned.mu.network)
        total = 0.0
        for i, fan_in in enumerate((3, 4)):
            for kind, rate in (("weight", 0.7 / fan_in), ("bias", 0.7)):
                w = np.asarray(getattr(whole.layers[i], kind))
                mask = masks.get(f"layers.{i}.{kind}", np.ones(w.shape, bool))
                by_input = relevance and w.ndim > 1
                groups = w.T if by_input else w.reshape(1, -1)
                kept = mask.T if by_input else mask.reshape(1, -1)
                for values, there in zip(groups, kept, strict=True):
                    total += student_t(values[there], 2.0, rate)
        assert float(log_prior(pruned.bare(), pruned.model)) == pytest.approx(total, rel=1e-4)
        own = pruned.model.priors.network.layers[0].weight
        size = pruned.mu.network.layers[0].weight.size
        drawn = jax.jit(lambda key: own.sample(key, (size,), jnp.float32))(jax.random.key(0))
        assert np.all(np.isfinite(drawn))

    def test_one_for_each_weight_of_the_whole_network(self, tmp_path):
        earlier = mean_field(model_of(mlp((4,))), seed=2)
        prior = px.priors.PerWeight(earlier.mu, sigma_of(earlier.rho))
        mask = np.arange(12).reshape(4, 3) % 2 == 0
        network = px.networks.sparse(mlp((4,)), {"layers.0.weight": mask})
        posterior = mean_field(model_of(network, prior))
        kept = kept_of(posterior)
        loc, scale = flat(earlier.mu)[kept], flat(sigma_of(earlier.rho))[kept]
        expected = stats.norm(loc, scale).logpdf(flat(posterior.mu)).sum()
        posterior.save(tmp_path / "a.px")
        for one in (posterior, px.load(tmp_path / "a.px")):
            assert float(log_prior(one.bare(), one.model)) == pytest.approx(expected, rel=1e-5)


class TestMethods:
    """What methods do with the weights that are left."""

    MASK = np.array([[1, 0], [0, 1], [1, 1]], bool)

    def line(self, mask=None):
        """y = x·w for inputs of 3 and outputs of 2, without some of w."""
        network = ({"w": jnp.ones((3, 2))}, lambda p, x: x @ p["w"])
        if mask is not None:
            network = px.networks.sparse(network, {"w": mask})
        return model_of(network, likelihood=px.likelihoods.Gaussian(0.1), targets=TWO)

    @pytest.mark.parametrize("rule", ["local", "flipout"])
    def test_estimators_see_whole_arrays(self, rule):
        rng = np.random.default_rng(0)
        means, stds = rng.normal(size=(2, 3, 2)).astype("float32")
        stds = np.abs(stds)
        rows = 2000
        x = np.repeat(X[:1], rows, 0)  # noise of its own for each of them
        key = jax.random.key(0)

        def outputs(model, mu, sigma):
            trees = (Parameters({"w": w}, {}) for w in (mu, sigma))
            found = estimators.forward(model, rule, *trees, (), x, key, jnp.ones(()), key)[0]
            return jnp.sum(jnp.sin(found)), found

        @eqx.filter_jit
        def both(sparse, dense):
            slope = jax.grad(outputs, (1, 2), has_aux=True)
            mask = self.MASK
            return (
                slope(sparse, jnp.asarray(means[mask]), jnp.asarray(stds[mask])),
                slope(dense, jnp.asarray(means * mask), jnp.asarray(stds * mask)),
            )

        (grads, found), (whole, expected) = both(self.line(self.MASK), self.line())
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        for got, want in zip(grads, whole, strict=True):
            np.testing.assert_allclose(got, want[self.MASK], rtol=1e-3, atol=1e-2)
        rest = np.asarray(found) - x @ (means * self.MASK)
        if rule == "local":  # by hand: χ² with a degree of freedom a row
            variance = X[0] ** 2 @ (stds * self.MASK) ** 2
            assert np.all(np.abs(np.square(rest).mean(0) / variance - 1) < 5 * np.sqrt(2 / rows))
        else:  # one perturbation, whose inputs and outputs have signs row by row
            assert len(np.unique(np.abs(rest[:, 0]).round(4))) == 2  # of two inputs that are kept
            assert np.unique(np.sign(rest[:, 0])).tolist() == [-1, 1]

    def test_the_summary_says_so(self):
        assert "product (local, flipout)" in self.line(self.MASK).summary(X)

    def test_what_needs_whole_arrays_is_refused(self):
        model = px.prune(mean_field(), 0.5).model
        data = (X, np.arange(7) % 2)
        with pytest.raises(ValueError, match=r"pruned of entries of layers.0.weight.*'diagonal'"):
            px.fit(model, data, px.Laplace(structure="kronecker"))
        for where in (None, "layers.1.*"):
            with pytest.raises(ValueError, match="MCDropout drops inputs of whole arrays"):
                px.fit(model, data, px.MCDropout(0.1, where=where))

    def test_the_last_layer_is_the_last_of_the_whole_network(self):
        model = px.prune(mean_field(), 0.5, where="layers.2.*").model
        example = jax.ShapeDtypeStruct((1, 3), "float32")
        (block,) = layout(model, example, "last_layer", None)
        names = list(named_leaves(model.parameters.network))
        assert [names[i] for i in block.leaves] == ["layers.2.weight", "layers.2.bias"]
        assert block.size == 7

    def test_a_start_with_other_weights_is_refused(self):
        flipped = self.line(self.MASK[:, ::-1])
        start = MeanFieldGaussian(flipped, (), TWO, mu=flipped.parameters, rho=flipped.parameters)
        for init in (start, flipped.network):
            with pytest.raises(ValueError, match="init was pruned of other weights"):
                px.fit(self.line(self.MASK), (X, X[:, :2]), px.BayesByBackprop(), init=init)

    def test_an_array_may_be_empty(self):
        def one(i):
            return {"all": i * jnp.arange(3.0), "none": jnp.zeros((0, 2))}

        # in groups of four, and three that remain
        found = jax.jit(lambda: map_samples(one, jnp.arange(7), 512))()
        assert found["none"].shape == (7, 0, 2)
        np.testing.assert_array_equal(found["all"], np.outer(np.arange(7), np.arange(3)))

    @pytest.mark.slow
    def test_black_box_with_empty_arrays(self):
        mask = {"layers.0.bias": np.zeros(4, bool), "layers.0.weight": np.zeros((4, 3), bool)}
        network = px.networks.sparse(mlp((4,)), mask)
        model = px.Model(network, None, px.likelihoods.Categorical())
        posterior = px.fit(model, (X, np.arange(7) % 2), px.BlackBoxVI(), steps=3, key=0)
        assert np.all(np.isfinite(posterior.predict(X, samples=4).mean))


@pytest.mark.usefixtures("hasty_compiler")
class TestFiles:
    @pytest.mark.parametrize("kind", ["plain", "frozen", "per weight", "empty"])
    def test_round_trip(self, kind, tmp_path):
        if kind == "frozen":
            model = model_of(mlp((4,)), None, where="layers.0.*", rest="frozen")
        elif kind == "per weight":
            other = mean_field(model_of(mlp((4,))))
            model = model_of(mlp((4,)), px.priors.PerWeight(other.mu, sigma_of(other.rho)))
        else:
            model = model_of(mlp((4,)))
        pruned = px.prune(mean_field(model), 1.0 if kind == "empty" else 0.6)
        pruned.save(tmp_path / "a.px")
        for loaded in (px.load(tmp_path / "a.px"), px.load(tmp_path / "a.px", model=model)):
            np.testing.assert_array_equal(kept_of(loaded), kept_of(pruned))
            np.testing.assert_array_equal(flat(loaded.rho), flat(pruned.rho))
            assert float(log_prior(loaded.bare(), loaded.model)) == pytest.approx(
                float(log_prior(pruned.bare(), pruned.model))
            )
            one, two = (p.model.network.rebuild(p.mu.network, ()) for p in (loaded, pruned))
            np.testing.assert_array_equal(flat(one), flat(two))
            assert px.pruning.report(loaded) == px.pruning.report(pruned)
        other = px.networks.sparse(mlp((4,)), {"layers.0.weight": np.zeros((4, 3), bool)})
        if kind == "plain":
            with pytest.raises(px.CheckpointError, match="pruned of other weights"):
                px.load(tmp_path / "a.px", model=model_of(other))

    def test_a_file_is_smaller(self, tmp_path):
        posterior = mean_field(model_of(px.networks.MLP(3, 2, (200, 200), key=0)))
        sizes = {}
        for fraction in (0.0, 0.75, 0.98):
            px.prune(posterior, fraction).save(tmp_path / "a.px")
            sizes[fraction] = (tmp_path / "a.px").stat().st_size
        weights = posterior.model.bayesian_size
        header = sizes[0.0] - 8 * weights
        for fraction in (0.75, 0.98):
            share = 1 - fraction
            bits = -share * np.log2(share) - fraction * np.log2(fraction)
            assert sizes[fraction] < 8 * share * weights + 1.3 * bits * weights / 8 + header + 2000


def example():
    """By hand: which units of 4 and 3 die, and of what."""
    model = model_of(mlp((4, 3)))
    masks = {
        # 0 lives; 1 has no input, but a bias; 2 has neither; 3 feeds only a unit that dies
        "layers.0.weight": np.array([[1, 1, 0], [0, 0, 0], [0, 0, 0], [1, 1, 1]], bool),
        "layers.0.bias": np.array([0, 1, 0, 1], bool),
        # 0 lives; 1 hears only the dead unit 2; 2 has no output
        "layers.1.weight": np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1]], bool),
        "layers.1.bias": np.array([1, 0, 1], bool),
        "layers.2.weight": np.array([[1, 1, 0], [0, 1, 0]], bool),
    }
    return model, masks


def first_draw(posterior):
    return jax.tree.map(lambda a: np.asarray(a)[0, 0], posterior.draws)


@pytest.mark.usefixtures("hasty_compiler")
class TestCompact:
    @pytest.mark.parametrize("family", [mean_field, draws_of])
    def test_units_that_die(self, family):
        model, masks = example()
        pruned = family(model.sparse(masks))
        small = px.pruning.compact(pruned)
        report = px.pruning.report(small)
        assert report.widths == ([4, 3], [2, 1])
        assert small.model.network.dense().params.layers[0].weight.shape == (2, 3)
        chosen = [p.mu if family is mean_field else first_draw(p) for p in (pruned, small)]
        outputs = [
            forward(p.model.network.rebuild(params.network, ()), X)
            for p, params in zip((pruned, small), chosen, strict=True)
        ]
        np.testing.assert_allclose(*outputs, atol=1e-5)
        if family is mean_field:  # what is left of the second bias is all there is of it
            assert small.rho.network.layers[1].bias.shape == (1,)

    def test_not_where_zero_is_not_silent(self):
        _, masks = example()
        model = model_of(mlp((4, 3), activation="sigmoid"))
        small = px.pruning.compact(mean_field(model.sparse(masks)))
        # without outputs: the last unit, and then the one that fed it alone
        assert px.pruning.report(small).widths == ([4, 3], [3, 2])

    def test_priors_and_file(self, tmp_path):
        _, masks = example()
        for prior in (px.priors.Gaussian(1.0, fan_in=True), px.priors.Hierarchical()):
            pruned = mean_field(model_of(mlp((4, 3)), prior).sparse(masks))
            small = px.pruning.compact(pruned)
            small.save(tmp_path / "a.px")
            loaded = px.load(tmp_path / "a.px")
            by_hand = 0.0
            for got, whole in zip(
                jax.tree.leaves(small.model.priors.network, is_leaf=is_prior),
                jax.tree.leaves(pruned.model.priors.network, is_leaf=is_prior),
                strict=True,
            ):
                value = got.scale if hasattr(got, "scale") else got.rate
                assert value == (whole.scale if hasattr(whole, "scale") else whole.rate)
            by_hand = float(log_prior(small.bare(), small.model))
            assert float(log_prior(loaded.bare(), loaded.model)) == pytest.approx(by_hand)
            np.testing.assert_array_equal(flat(loaded.rho), flat(small.rho))

    def test_a_network_without_weights_has_a_unit(self):
        small = px.pruning.compact(px.prune(mean_field(), 1.0))
        assert px.pruning.report(small).widths == ([8, 6], [1, 1])

    def test_it_counts_from_the_network_before(self, tmp_path):
        posterior = mean_field()
        first = px.pruning.compact(px.prune(posterior, 0.85))
        first.save(tmp_path / "a.px")
        report = px.pruning.report(px.load(tmp_path / "a.px"))
        left = first.model.bayesian_size
        assert sum(report.sizes.values()) == 100
        assert report.fraction == pytest.approx(1 - left / 100)
        assert left <= 15
        second = px.pruning.compact(px.prune(first, 0.96, by="magnitude"))
        assert px.pruning.report(second).widths[0] == [8, 6]
        assert sum(px.pruning.report(second).sizes.values()) == 100
        assert px.prune(first, 0.96).model.bayesian_size == 4
        with pytest.raises(ValueError, match="gone already"):
            px.prune(first, 0.5)

    @pytest.mark.parametrize("activation", ["relu", "gelu", "softplus"])
    def test_same_outputs_whatever_is_missing(self, activation):
        """Softplus of 0 is not 0: a unit that hears nothing still speaks, and has to stay."""
        rng = np.random.default_rng(0)
        model = model_of(mlp((10, 10), activation=activation))
        masks = {
            name: rng.random(w.shape) < (0.25 if w.ndim > 1 else 0.3)
            for name, w in named_leaves(model.network.params).items()
        }
        pruned = mean_field(model.sparse(masks))
        small = px.pruning.compact(pruned)
        each = {
            "relu": lambda z: np.maximum(z, 0),
            "gelu": lambda z: z / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))),
            "softplus": lambda z: np.logaddexp(0, z),
        }[activation]
        outputs = [
            forward(p.model.network.rebuild(p.mu.network, ()), X, each) for p in (pruned, small)
        ]
        np.testing.assert_allclose(*outputs, atol=1e-5)
        used = masks["layers.2.weight"].any(0)
        heard = masks["layers.1.weight"][used].any(0)
        deaf = ~masks["layers.0.weight"].any(1) & ~masks["layers.0.bias"]
        assert np.any(deaf & heard)  # or nothing is tested
        widths = px.pruning.report(small).widths[1]
        assert all(2 <= width < 10 for width in widths)
        if activation == "softplus":
            assert widths == [heard.sum(), used.sum()]


def errors():
    posterior = mean_field()
    sparse = px.networks.sparse
    return {
        "needs one of": lambda: px.prune(posterior),
        "fraction and threshold": lambda: px.prune(posterior, 0.5, threshold=0.0),
        "between 0 and 1": lambda: px.prune(posterior, 1.5),
        "goes with validation": lambda: px.prune(posterior, tolerance=0.1),
        "tolerance must be 0 or more": lambda: px.prune(
            posterior, tolerance=-1.0, validation=(X, np.zeros(7, int))
        ),
        "gone already": lambda: px.prune(px.prune(posterior, 0.5), 0.4),
        "scope must be": lambda: px.prune(posterior, 0.5, scope="array"),
        "by must be": lambda: px.prune(posterior, 0.5, by="size"),
        "matches no weight": lambda: px.prune(posterior, 0.5, where="head.*"),
        "by='magnitude'": lambda: px.prune(
            Point(posterior.model, (), CLASSES, point=posterior.mu), 0.5
        ),
        "Radial has no deviation": lambda: px.prune(
            Radial(posterior.model, (), CLASSES, mu=posterior.mu, rho=posterior.rho), 0.5
        ),
        "residual=True": lambda: px.pruning.compact(
            mean_field(model_of(mlp((4, 4), residual=True)))
        ),
        "no weight is called 'head'": lambda: sparse(mlp(), {"head": np.ones(3, bool)}),
        "must be booleans": lambda: sparse(mlp(), {"layers.0.bias": np.ones(8)}),
        "must have the shape": lambda: sparse(mlp(), {"layers.0.bias": np.ones(9, bool)}),
    }


@pytest.mark.parametrize("message", errors())
def test_errors(message):
    with pytest.raises((ValueError, TypeError), match=message):
        errors()[message]()


def test_digits():
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype("float32")
    data, held_out = (x[:1200], y[:1200]), (x[1200:1500], y[1200:1500])
    prior = px.priors.ScaleMixture(0.5, 1.0, 0.01)
    model = px.Model(px.networks.MLP(64, 10, (32,), key=0), prior, px.likelihoods.Categorical())
    method = px.BayesByBackprop(learning_rate=1e-2)
    posterior = px.fit(model, data, method, epochs=40, batch_size=128, key=0)
    pruned = px.prune(posterior, tolerance=0.05, validation=held_out, samples=32)
    report = px.pruning.report(pruned)
    assert report.fraction > 0.5
    assert dict(report.curve)[report.fraction] <= dict(report.curve)[0.0] + 0.05

    harder = px.prune(pruned, 0.95)
    tuned = px.fit(harder.model, data, method, epochs=20, batch_size=128, init=harder, key=0)
    np.testing.assert_array_equal(kept_of(tuned), kept_of(harder))
    assert np.all(whole_means(tuned)[~kept_of(harder)] == 0)
    before, after = (
        px.metrics.negative_log_likelihood(p.predict(held_out[0], samples=32), held_out[1])
        for p in (harder, tuned)
    )
    assert after < before


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flax", "conv", "low rank", "pair"])
def test_any_network(kind, tmp_path):
    x = X
    if kind == "flax":
        from flax import nnx

        network = nnx.Sequential(
            nnx.Linear(3, 8, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(8, 2, rngs=nnx.Rngs(1))
        )
    elif kind == "conv":
        one, two = jax.random.split(jax.random.key(0))
        layers = [eqx.nn.Conv2d(1, 3, 3, key=one), eqx.nn.Lambda(jnp.ravel)]
        network = eqx.nn.Sequential([*layers, eqx.nn.Linear(12, 2, key=two)])
        x = np.random.default_rng(0).normal(size=(7, 1, 4, 4)).astype("float32")
    elif kind == "low rank":
        network = px.networks.low_rank(mlp(), rank=2, key=1)
    else:
        w = {"a": {"w": np.ones((3, 4), "float32")}, "b": np.ones((4, 2), "float32")}
        network = (w, lambda p, x: jnp.tanh(x @ p["a"]["w"]) @ p["b"])
    model = model_of(network)
    pruned = px.prune(mean_field(model), 0.7)
    size = model.bayesian_size
    assert pruned.model.bayesian_size == size - round(0.7 * size)
    kept = kept_of(pruned)
    assert np.all(whole_means(pruned)[~kept] == 0)
    state = model.network.state
    zeros = pruned.model.network.inner(pruned.mu.network)
    expected = model.network.apply(zeros, state, x, None, training=False)[0]
    apply = jax.jit(lambda params: pruned.model.network.apply(params, state, x, None, False)[0])
    np.testing.assert_allclose(apply(pruned.mu.network), expected, rtol=1e-5, atol=1e-6)
    y = np.arange(7) % 2
    tuned = px.fit(pruned.model, (x, y), px.BayesByBackprop(), steps=3, init=pruned)
    assert np.all(whole_means(tuned)[~kept] == 0)
    tuned.save(tmp_path / "a.px")
    loaded = px.load(tmp_path / "a.px", model=model)
    np.testing.assert_array_equal(
        loaded.predict(x, samples=4).mean, tuned.predict(x, samples=4).mean
    )
