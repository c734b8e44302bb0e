"""HMC and NUTS against posteriors known exactly, and what they say when they cannot sample."""

import os
import subprocess
import sys
import textwrap
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import posterax as px
from posterax.fitting import run
from posterax.fitting.start import make_start
from posterax.infer.chains.hamiltonian import Sampling, WarmUp
from tests import sbc
from tests.conjugate import conjugate, t_values

CHAINS = 32
SAMPLERS = {
    "hmc": px.HMC(CHAINS, warmup=200, leapfrog_steps=8),
    "nuts": px.NUTS(CHAINS, warmup=200, max_doublings=5),
    "dense": px.NUTS(CHAINS, warmup=200, max_doublings=5, metric="dense"),
}


@pytest.fixture(scope="module")
def truth():
    return conjugate()


@pytest.mark.parametrize("name", SAMPLERS)
def test_means_and_covariances_of_the_linear_model(truth, name):
    posterior = px.fit(truth.model(), truth.data, SAMPLERS[name], steps=150, key=1)
    draws = np.asarray(posterior.draws.network["w"])
    # 9 two-sided tests with 31 degrees of freedom: a sound sampler fails one in 400 runs
    assert np.abs(t_values(truth, draws)).max() < 4
    # and the test has power: an error of a fifth of a deviation would not pass
    shifted = draws + 0.2 * np.sqrt(np.diag(truth.covariance))
    assert np.abs(t_values(truth, shifted)).max() > 4


@pytest.mark.parametrize("name", ["hmc", "nuts"])
def test_simulation_based_calibration(name, calibration):
    method = {
        "hmc": px.HMC(1, warmup=200, leapfrog_steps=8),
        "nuts": px.NUTS(1, warmup=200, max_doublings=5),
    }[name]
    figure = sbc.p_values(sbc.ranks(method)).min()
    calibration(name, figure=figure, least=1e-3, **sbc.compared())


class Broken(Sampling):
    """Forgets to correct: takes the end of the trajectory whatever it did to the energy."""

    def _transition(self, state, batch, key):
        hmc, info = super()._transition(state, batch, key)
        end = info.proposal
        return hmc._replace(position=end.position, logdensity=end.logdensity,
                            logdensity_grad=end.logdensity_grad), info  # fmt: skip

    def init(self, previous, data, key):
        state = super().init(previous, data, key)
        return state._replace(step_size=1.7 * state.step_size)


class BrokenHMC(px.HMC):
    def phases(self, model, plan):
        warm, sampling = super().phases(model, plan)
        return [warm, Broken(**vars(sampling))]


def test_simulation_based_calibration_notices_a_broken_kernel():
    assert sbc.p_values(sbc.ranks(BrokenHMC(1, warmup=200, leapfrog_steps=8))).min() < 1e-6


@pytest.mark.usefixtures("hasty_compiler")
def test_chains_start_at_the_draws_of_an_earlier_posterior(truth):
    ensemble = px.fit(truth.model(), truth.data, px.DeepEnsemble(3), steps=5, key=0)
    method = px.NUTS(3, warmup=20)
    phase = method.phases(ensemble.model, sbc.plan_for(1))[0]
    start = make_start(ensemble, ensemble.model)
    members = np.asarray(ensemble.draws.network["w"])[0]
    np.testing.assert_allclose(phase.starts(start, jax.random.key(0)), members, rtol=1e-6)
    # more chains than members: in turn, and not at the very same place
    phase = px.NUTS(6, warmup=20).phases(ensemble.model, sbc.plan_for(1))[0]
    starts = np.asarray(phase.starts(start, jax.random.key(0)))
    np.testing.assert_allclose(starts, np.tile(members, (2, 1)), atol=0.06)
    assert len(np.unique(starts, axis=0)) == 6


def funnel():
    """A density that no single step size fits: log deviation v ~ N(0, 9), nine w ~ N(0, e^v)."""
    x, y = np.zeros((9, 1), "float32"), np.zeros(9, "float32")

    def outputs(params, x):
        deviation = jnp.exp(params["v"] / 2)
        return jnp.stack([params["w"], jnp.broadcast_to(deviation, (9,))], axis=1)

    likelihood = px.likelihoods.From(
        lambda f: dist.Normal(f[..., :1], f[..., 1:]), kind="regression"
    )
    prior = px.priors.ByPart({"v": px.priors.Gaussian(3.0)}, default=px.priors.Gaussian(1e3))
    network = ({"v": jnp.zeros(()), "w": jnp.zeros(9)}, outputs)
    return px.Model(network, prior, likelihood), (x, y)


def test_divergences_are_counted_and_explained():
    model, data = funnel()
    with pytest.warns(UserWarning, match=r"transitions \(.*diverged.*target_acceptance"):
        posterior = px.fit(model, data, px.NUTS(4, warmup=150, max_doublings=6), steps=200, key=0)
    assert posterior.stats["diverging"].sum() == posterior.history["divergences"].sum() > 0


class Wild(WarmUp):
    """Steps so long that every trajectory leaves for infinity."""

    def _transition(self, state, batch, key):
        return super()._transition(state._replace(step_size=1e4 + 0 * state.step_size), batch, key)


class WildHMC(px.HMC):
    def phases(self, model, plan):
        warm, sampling = super().phases(model, plan)
        return [Wild(**vars(warm)), sampling]


@pytest.mark.usefixtures("hasty_compiler")
def test_chains_that_always_diverge_are_an_error_and_the_state_is_saved(truth, tmp_path):
    with pytest.raises(px.StuckError, match=r"warming up: every transition.*The state is in"):
        px.fit(
            truth.model(), truth.data, WildHMC(2, warmup=100, leapfrog_steps=4), steps=10,
            checkpoint=tmp_path / "state",
        )  # fmt: skip
    assert any((tmp_path / "state").iterdir())


def test_chains_that_never_move_are_trouble_and_short_runs_are_not_judged(truth):
    phase = px.HMC(2).phases(truth.model().for_targets((1,), "float32"), sbc.plan_for(1))[0]
    still = {"acceptance": np.zeros(200), "divergences": np.zeros(200)}
    assert "no chain moves" in phase.explain(None, still)
    assert phase.explain(None, {name: values[:20] for name, values in still.items()}) is None
    late = np.repeat([0.0, 0.8], 100)  # a slow start is forgiven
    assert phase.explain(None, still | {"acceptance": late}) is None


@pytest.mark.usefixtures("hasty_compiler")
def test_the_cost_of_all_data_at_each_step_is_said(truth, monkeypatch):
    monkeypatch.setattr(run, "MANY_ROWS", 20)
    monkeypatch.setattr(run, "LONG_SECONDS", 1e-9)
    with pytest.warns(UserWarning, match=r"HMC goes over all 20 examples, at .* s a step.*SGHMC"):
        px.fit(truth.model(), truth.data, px.HMC(1, warmup=30), steps=30)


def test_dense_metric_beyond_memory_is_refused_with_its_bytes():
    model = px.Model(
        px.networks.MLP(784, 10, (1200, 1200), key=0), likelihood=px.likelihoods.Categorical()
    )
    x, y = np.zeros((4, 784), "float32"), np.zeros(4, int)
    with pytest.raises(MemoryError, match=r"metric='dense' for 2,395,210 weights needs [\d,]+ byt"):
        px.fit(model, (x, y), px.HMC(metric="dense"), steps=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "full"}, "metric must be one of 'diagonal', 'dense'"),
        ({"leapfrog_steps": 0}, "leapfrog_steps must be"),
        ({"target_acceptance": 1.5}, "target_acceptance must lie between 0 and 1"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        px.HMC(**options)


def test_chains_over_two_devices_give_the_same_draws(truth, tmp_path):
    script = textwrap.dedent(
        """
        import sys, numpy as np, jax, posterax as px
        sys.path.insert(0, ".")
        from posterax.fitting import loop
        from tests.conjugate import conjugate
        on, chunk = [], loop.run_chunk
        def watched(fixed, state, buffers):
            result = chunk(fixed, state, buffers)
            on.append(len(result.state.hmc.position.sharding.device_set))
            return result
        loop.run_chunk = watched
        truth = conjugate()
        posterior = px.fit(
            truth.model(), truth.data, px.HMC(4, warmup=4, leapfrog_steps=2), steps=3, key=0
        )
        np.save(sys.argv[1], np.asarray(posterior.draws.network["w"]))
        print(len(jax.devices()), min(on))
        """
    )
    draws = []
    for devices in (1, 2):
        out = tmp_path / f"{devices}.npy"
        environment = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
        found = subprocess.run(
            [sys.executable, "-c", script, out], capture_output=True, text=True, check=True,
            env=os.environ | environment,
        )  # fmt: skip
        assert found.stdout.split() == [str(devices)] * 2
        draws.append(np.load(out))
    np.testing.assert_allclose(draws[0], draws[1], rtol=1e-3, atol=1e-4)


def test_no_warning_without_divergences(truth):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", px.ConvergenceWarning)  # twenty draws are too few
        px.fit(truth.model(), truth.data, px.HMC(2, warmup=100, leapfrog_steps=8), steps=20)
