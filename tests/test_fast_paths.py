"""What makes a step fast changes no result: each fast path beside the plain one, on one noise."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import posterax as px
from posterax._util.noise import noise_key, standard_normal_like
from posterax.fitting import loop
from posterax.fitting.prepare import Asked, prepare
from posterax.fitting.start import make_start
from posterax.infer.objective import batch_nll
from posterax.posteriors import base
from posterax.program import shared_products

PRIORS = {
    "gaussian": px.priors.Gaussian(0.7),
    "mixture": px.priors.ScaleMixture(0.4, 1.0, 0.05),
    "laplace": px.priors.Laplace(0.3),
    "cauchy": px.priors.as_prior(dist.Cauchy(0.0, 1.0)),
}


@pytest.fixture
def setting(rng):
    x = rng.normal(size=(300, 4)).astype(np.float32)
    y = rng.integers(0, 3, 300)

    def make(method, prior="mixture"):
        model = px.Model(
            px.networks.MLP(4, 3, (16, 16), key=0), PRIORS[prior], px.likelihoods.Categorical()
        )
        ready = prepare(model, (x, y), method, Asked(None, 64, 32))
        (phase,) = method.phases(ready.model, ready.plan)
        key = jax.random.key(5)
        state = loop.first_state(phase, make_start(None, ready.model), ready.data, key)
        return phase, state, ready, key

    return make


@pytest.mark.usefixtures("hasty_compiler")
@pytest.mark.parametrize("prior", PRIORS)
def test_shift_and_scale_is_the_derivative_of_the_objective(setting, prior):
    """Closed-form gradients against automatic ones of the written-out objective."""
    method = px.BayesByBackprop(initial_rho=-1.0, estimator="weight")
    phase, state, ready, key = setting(method, prior)
    batch = ready.data.batch(ready.data.place(jnp.asarray(3), 32, ready.plan.batches, key))
    noise = standard_normal_like(noise_key(key), state.mu)
    scales = jnp.float32(0.7), jnp.float32(0.2)

    def objective(mu, rho):
        sigma = jax.tree.map(lambda r: jnp.log1p(jnp.exp(r)), rho)
        w = jax.tree.map(lambda m, s, e: m + s * e, mu, sigma, noise)
        nll = batch_nll(phase.model, w, state.state, batch, key)[0]
        log_p = jax.tree.map(
            lambda p, w: jnp.sum(p.log_prob(w)), phase.model.priors, w,
            is_leaf=lambda n: isinstance(n, px.priors.Prior),
        )  # fmt: skip
        log_q = jax.tree.map(lambda m, s, w: jnp.sum(dist.Normal(m, s).log_prob(w)), mu, sigma, w)
        kl = sum(jax.tree.leaves(log_q)) - sum(jax.tree.leaves(log_p))
        if prior in ("gaussian", "laplace"):
            kl = sum(
                jnp.sum(PRIORS[prior].kl_from_gaussian(m, s))
                for m, s in zip(jax.tree.leaves(mu), jax.tree.leaves(sigma), strict=True)
            )
        return scales[0] * nll + scales[1] * kl

    # one program each: operation by operation would compile hundreds
    slopes = jax.jit(jax.grad(objective, (0, 1)))(state.mu, state.rho)
    plain = dict(zip(("mu", "rho"), slopes, strict=True))
    fast = eqx.filter_jit(phase.gradient)(state, batch, key, jnp.ones(()), scales)[0]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-6), fast, plain)


@pytest.mark.usefixtures("hasty_compiler")
def test_kl_is_skipped_where_its_weight_is_nothing(setting):
    """Below float32's resolution the gradient is the likelihood's; just above, the KL counts."""
    phase, state, ready, key = setting(px.BayesByBackprop(initial_rho=-1.0, estimator="weight"))
    batch = ready.data.batch(ready.data.place(jnp.asarray(3), 32, ready.plan.batches, key))
    unit = float(ready.plan.batches / ready.plan.total)

    def gradient(share):
        scales = jnp.float32(0.7), jnp.float32(share * unit)
        return phase.gradient(state, batch, key, jnp.ones(()), scales)[0]

    none, tiny, small = (gradient(share) for share in (0.0, 1e-8, 1e-3))
    jax.tree.map(np.testing.assert_array_equal, none, tiny)
    assert all(np.all(a != b) for a, b in zip(*map(jax.tree.leaves, (none, small)), strict=True))


@pytest.mark.usefixtures("hasty_compiler")
@pytest.mark.parametrize(("start", "stop"), [(0, 64), (5, 50), (16, 47)])
def test_blocks_of_steps_are_steps(setting, start, stop):
    """A GPU's blocks and a CPU's single steps: the same states, history and reports."""
    phase, state, ready, key = setting(px.BayesByBackprop(learning_rate=0.01))
    found = []
    for block in (1, loop.PERIOD):
        buffers = loop.make_buffers(loop.abstract_info(phase, state, ready.data, key), 128, 0)
        fixed = (phase, ready.data, key, jnp.asarray(start), jnp.asarray(stop), 1, block)
        copy = jax.tree.map(lambda a: jnp.array(a, copy=True), state)
        chunk = loop.run_chunk(fixed, copy, buffers)
        assert int(chunk.taken) == stop - start
        terms = loop.terms_of(chunk.buffers, stop - start)
        reports = loop.reports_of(chunk.buffers, start, stop - start)
        assert reports["kl"][0].tolist() == [t for t in range(start, stop) if t % loop.PERIOD == 0]
        assert int(chunk.state.average.taken) == (stop == 64)  # of the last quarter
        found.append((chunk.state.mu, chunk.state.rho, chunk.state.average.mean, terms, reports))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), *found)


@pytest.mark.usefixtures("hasty_compiler")
def test_reports_hold_until_the_next(setting):
    """In the history a report is that of the last multiple of the period, also over chunks."""
    phase, _, ready, _ = setting(px.BayesByBackprop(learning_rate=0.01))
    whole = px.fit(
        px.Model(phase.model.network, PRIORS["mixture"], px.likelihoods.Categorical()),
        (np.asarray(ready.data.x), np.asarray(ready.data.y)),
        px.BayesByBackprop(learning_rate=0.01), steps=40, batch_size=32, key=1,
    )  # fmt: skip
    kl = whole.history["kl"]
    assert len(kl) == 40
    steps, values = whole.record.reports["kl"]
    assert steps.tolist() == [0, 16, 32]
    np.testing.assert_array_equal(kl[[0, 16, 32]], values)
    for block in (kl[:16], kl[16:32], kl[32:]):
        assert len(np.unique(block)) == 1
    assert len(np.unique(kl)) == 3


def conv(key):
    a, b = jax.random.split(key)
    return eqx.nn.Sequential(
        [
            eqx.nn.Lambda(lambda x: x.reshape(1, 4, 4)),
            eqx.nn.Conv2d(1, 3, 2, key=a),
            eqx.nn.Lambda(lambda h: jnp.tanh(h).ravel()),
            eqx.nn.Linear(27, 3, key=b),
        ]
    )


def tied():
    w = jax.random.normal(jax.random.key(0), (16, 16)) / 4
    return {"w": w, "out": w[:, :3]}, lambda p, x: jnp.tanh(x @ p["w"]) @ p["w"] @ p["out"]


def recurrent():
    w = jax.random.normal(jax.random.key(0), (16, 16)) / 4

    def apply(p, x):
        return jax.lax.scan(lambda h, _: (jnp.tanh(h @ p["w"]), None), x, None, length=3)[0][:, :3]

    return {"w": w}, apply


NETWORKS = {
    "mlp": (lambda: px.networks.MLP(16, 3, (8, 8), key=0), 1),
    "convolution": (lambda: conv(jax.random.key(0)), 1),
    "used twice": (tied, 1),
    "recurrent": (recurrent, 0),
}


SLOW = ("convolution", "used twice")


@pytest.mark.usefixtures("hasty_compiler")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in NETWORKS]
)
def test_shared_products_predict_the_same(rng, name):
    """x·(μ ± δ) from x·μ and x·δ: outputs are the network's own at every drawn weight."""
    make, count = NETWORKS[name]
    model = px.Model(make(), PRIORS["gaussian"], px.likelihoods.Categorical())
    x = rng.normal(size=(11, 16)).astype(np.float32)
    y = rng.integers(0, 3, 11)
    posterior = px.fit(model, (x, y), px.BayesByBackprop(initial_rho=-1.0), steps=3, key=0)
    network = lambda w, x: posterior.model.network.apply(w, (), x, None, False)[0]  # noqa: E731
    assert len(shared_products.products(network, posterior.mu.network, jnp.asarray(x))) == count

    for samples in (1, 5):
        same_as_the_network(posterior, x, samples)


def same_as_the_network(posterior, x, samples):
    predictive = posterior.predict(x, samples=samples, key=4)
    ids = predictive._particles.ids
    weights = jax.vmap(posterior.parameters)(ids)
    exact = jax.vmap(lambda w: posterior.model.apply(w, posterior.state, x, None, False)[0])(
        weights
    )
    np.testing.assert_allclose(predictive.outputs(), exact, rtol=1e-4, atol=1e-5)
    first = jax.tree.map(lambda w, m: np.asarray(w - m), weights, posterior.mu).network
    for leaf in jax.tree.leaves(first):
        assert np.abs(leaf).max() > 0
        np.testing.assert_allclose(leaf[1::2], -leaf[: 2 * (samples // 2) : 2], atol=1e-5)


@pytest.mark.usefixtures("hasty_compiler")
def test_blocks_of_inputs_predict_the_same(setting):
    """Groups of samples, blocks of inputs: the size of neither changes a prediction."""
    phase, _, ready, _ = setting(px.BayesByBackprop())
    x = np.asarray(ready.data.x)
    posterior = px.fit(phase.model, (x, np.asarray(ready.data.y)), px.BayesByBackprop(), epochs=1)
    predictive = posterior.predict(x, samples=12, key=0)
    small = posterior.predict(x, samples=12, key=0, block_bytes=20_000)
    np.testing.assert_allclose(predictive.mean, small.mean, rtol=1e-5, atol=1e-6)
    mean = np.mean([np.asarray(jax.nn.softmax(o)) for o in predictive.outputs()], axis=0)
    np.testing.assert_allclose(predictive.mean, mean, rtol=1e-5, atol=1e-6)


def test_members_have_their_means_of_the_last_iterates():
    x = np.linspace(-1, 1, 32, dtype=np.float32)[:, None]
    model = px.Model(
        px.networks.MLP(1, 1, (4,), key=0), px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1)
    )
    ensemble = px.DeepEnsemble(2, inside=px.BayesByBackprop())
    ready = prepare(model, (x, x[:, 0]), ensemble, Asked(None, 32, 32))
    (phase,) = ensemble.phases(ready.model, ready.plan)
    key = jax.random.key(0)
    state = loop.first_state(phase, make_start(None, ready.model), ready.data, key)
    buffers = loop.make_buffers(loop.abstract_info(phase, state, ready.data, key), 32, 0)
    fixed = (phase, ready.data, key, jnp.asarray(0), jnp.asarray(32), 1, loop.PERIOD)
    together = phase._together(loop.run_chunk(fixed, *loop.own((state, buffers))).state)
    average = together.state.average
    assert average.taken.tolist() == [1, 1]
    jax.tree.map(np.testing.assert_array_equal, average.mean["mu"], together.state.mu)


@pytest.mark.usefixtures("hasty_compiler")
@pytest.mark.parametrize("block", [1, loop.PERIOD])
def test_the_mean_of_iterates_does_not_depend_on_chunks(setting, block):
    """However the steps are cut, also at a period's end and within it."""
    phase, first, ready, key = setting(px.BayesByBackprop(learning_rate=0.01))
    found = []
    for stops in ([112], [48, 64, 80, 112], [1, 9, 64, 71, 80, 81, 96, 111, 112]):
        buffers = loop.make_buffers(loop.abstract_info(phase, first, ready.data, key), 128, 0)
        state, buffers = loop.own((first, buffers))
        for start, stop in itertools.pairwise([0, *stops]):
            fixed = (phase, ready.data, key, jnp.asarray(start), jnp.asarray(stop), 1, block)
            chunk = loop.run_chunk(fixed, state, buffers)
            state, buffers = chunk.state, chunk.buffers
        assert int(state.average.taken) == 4  # at 64, 80, 96 and 112: late, of 64 steps
        found.append((state.mu, state.rho, state.average))
    for other in found[1:]:
        jax.tree.map(np.testing.assert_array_equal, found[0], other)


def test_which_steps_a_gpu_takes_in_whole_periods(monkeypatch):
    """Small ones, without loops and convolutions, that are not of chains."""
    rng = np.random.default_rng(0)

    def length(network, method, x, likelihood=None, phase=0):
        likelihood = likelihood or px.likelihoods.Gaussian(0.1)
        model = px.Model(network, px.priors.Gaussian(1.0), likelihood)
        y = np.zeros(8)
        ready = prepare(model, (x, y), method, Asked(None, 8, None if phase else 4))
        own = ready.phases[0]
        state = jax.eval_shape(
            lambda key: own.init(make_start(None, ready.model), ready.data, key), jax.random.key(0)
        )
        return loop.block_length(own, state)

    dense = px.networks.MLP(1, 1, (4,), key=0)
    x = rng.normal(size=(8, 1)).astype(np.float32)
    method = px.BayesByBackprop()
    assert length(dense, method, x) == 1  # a CPU has no graphs
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert length(dense, method, x) == loop.PERIOD
    assert length(dense, px.DeepEnsemble(2), x) == loop.PERIOD
    exposed = (x, np.ones(8, np.float32))
    assert length(dense, method, exposed, px.likelihoods.Poisson(exposure=True)) == loop.PERIOD
    recurrent = px.networks.Recurrent(2, 1, 3, key=0)
    assert length(recurrent, method, np.zeros((8, 5, 2), np.float32)) == 1
    lenet = px.networks.LeNet5(out_size=1, key=0)
    assert length(lenet, method, np.zeros((8, 28, 28), np.float32)) == 1
    for chains in (px.NUTS(warmup=10), px.MCLMC()):
        assert length(dense, chains, x, phase=1) == 1
    monkeypatch.setattr(loop, "SMALL_STEP", 40)
    assert length(dense, method, x) == loop.PERIOD
    assert length(dense, px.DeepEnsemble(2), x) == 1
    monkeypatch.setattr(loop, "LARGE_STATE", 4)
    assert length(dense, method, x) == 1


def test_samples_are_mapped_in_groups_that_a_gpu_has_memory_for(monkeypatch):
    """As many at once as keep it busy, and as their largest arrays leave room for."""
    groups = []
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(base, "_in_groups", lambda f, ids, group: groups.append(group))
    monkeypatch.setattr(jax.lax, "map", lambda f, ids: groups.append(1))
    ids = jnp.arange(100)
    for rows, width in ((2**14, 1), (2**10, 1), (2**14, 2**11), (2**14, 2**14)):
        base.map_samples(lambda i, n=rows * width: jnp.zeros(n) + i, ids, rows)
    assert groups == [10, 100, 2, 1]
