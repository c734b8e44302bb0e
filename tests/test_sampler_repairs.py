"""Samplers stopped, resumed and asked for what they do not have."""

import jax
import numpy as np
import pytest

import posterax as px
from posterax._util.identity import identify
from posterax.callbacks import StopFit
from posterax.diagnostics.chain_statistics import mcse
from posterax.infer.chains.hamiltonian import Sampling
from tests.conjugate import conjugate

pytestmark = [
    pytest.mark.usefixtures("hasty_module"),
    pytest.mark.filterwarnings("ignore:.*transitions .*diverged"),
]
SHORT = px.HMC(chains=2, warmup=20, leapfrog_steps=4)


@pytest.fixture(scope="module")
def truth():
    return conjugate()


@pytest.fixture(scope="module")
def posterior(truth):
    return px.fit(truth.model(), truth.data, SHORT, steps=8, key=0)


def stop(event):
    raise StopFit


def test_resumed_draws_are_in_the_checkpoint(truth, posterior, tmp_path):
    def longer():
        return px.fit(
            truth.model(), truth.data, SHORT, steps=8, key=0, resume=posterior, checkpoint=tmp_path
        )

    first, again = longer(), longer()
    assert first.shape == again.shape == (2, 16)
    np.testing.assert_array_equal(first.draws.network["w"], again.draws.network["w"])
    np.testing.assert_array_equal(first.draws.network["w"][:, :8], posterior.draws.network["w"])


def test_chains_are_not_resumed_for_another_posterior(truth, posterior):
    model, (x, y) = truth.model(), truth.data
    wide = px.Model(model.network, px.priors.Gaussian(3.0), px.likelihoods.Gaussian(0.5))
    noisy = px.Model(model.network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.7))
    cases = {"data": (model, (x, -y)), "prior": (wide, (x, y)), "likelihood": (noisy, (x, y))}
    for word, (other, data) in cases.items():
        with pytest.raises(ValueError, match=rf"resume: these draws are for another {word}"):
            px.fit(other, data, SHORT, steps=8, key=0, resume=posterior)
    with pytest.raises(ValueError, match=r"another model or method \(HMC\)"):
        px.fit(model, (x, y), px.NUTS(2, warmup=20), steps=8, key=0, resume=posterior)


def test_a_callback_that_stops_a_warm_up_stops_the_fit(truth):
    with pytest.raises(StopFit, match="stopped while warming up, before there is a posterior"):
        px.fit(truth.model(), truth.data, SHORT, steps=8, key=0, callbacks=[stop])


def test_a_warm_up_that_was_stopped_goes_on_with_the_same_call(truth, posterior, tmp_path):
    """It was taken for a finished one, and the draws were those of a chain half adapted."""
    options = {"steps": 8, "key": 0, "checkpoint": tmp_path}
    with pytest.raises(StopFit):
        px.fit(truth.model(), truth.data, SHORT, callbacks=[stop], **options)
    whole = px.fit(truth.model(), truth.data, SHORT, **options)
    np.testing.assert_array_equal(whole.draws.network["w"], posterior.draws.network["w"])


def test_a_callback_that_stops_sequential_monte_carlo_keeps_its_particles(truth):
    method = px.SMC(particles=40, groups=2, mutation_steps=1)
    with pytest.warns(UserWarning, match="stopped at a temperature"):
        stopped = px.fit(truth.model(), truth.data, method, key=0, callbacks=[stop])
    assert stopped.shape == (2, 20)
    with pytest.raises(ValueError, match="once they ran to their end"):
        _ = stopped.log_evidence


class Coarse(Sampling):
    """Steps so long that the ends of trajectories have a far higher energy and are rejected."""

    def init(self, previous, data, key):
        state = super().init(previous, data, key)
        return state._replace(step_size=4 * state.step_size)


class CoarseHMC(px.HMC):
    def phases(self, model, plan):
        warm, sampling = super().phases(model, plan)
        return [warm, Coarse(**vars(sampling))]


def test_energy_is_that_of_the_kept_state(truth):
    method = CoarseHMC(chains=8, warmup=150, leapfrog_steps=4)
    stats = px.fit(truth.model(), truth.data, method, steps=60, key=0).stats
    assert np.mean(np.diff(stats["lp"], axis=1) == 0) > 0.5  # most are rejected
    kinetic = np.asarray(stats["energy"]) + np.asarray(stats["lp"])
    # ½ rᵀM⁻¹r is half a chi-square of three degrees wherever the chain stays: 1.5 on average,
    # with a standard error of 0.06 over 480 draws
    assert kinetic.min() >= -1e-3
    assert 1.2 < kinetic.mean() < 1.8


def test_one_draw_has_no_error_to_speak_of():
    assert np.isnan(mcse(np.ones((1, 1))))
    assert mcse(np.array([[0.0, 2.0]])) == pytest.approx(1.0)  # √(2 / 2)


def test_checkpoints_tell_proposals_apart():
    def walk(size):
        return lambda key, w: w + size * jax.random.normal(key, w.shape)

    small, large = (px.Metropolis(proposal=(walk(size), None)) for size in (0.1, 0.9))
    assert identify(small) != identify(large)
    assert identify(small) == identify(px.Metropolis(proposal=(walk(0.1), None)))


def test_advice_is_in_the_words_of_the_method(truth):
    model = truth.model()
    particles = px.fit(model, truth.data, px.SMC(particles=40, groups=2, mutation_steps=1), key=0)
    assert "particles" in particles.diagnose().verdict
    assert "steps=" not in particles.diagnose().verdict.replace("mutation_steps", "")
    noisy = px.SGLD(1e-5, chains=2, keep=10)
    few = px.fit(model, truth.data, noisy, steps=40, batch_size=10, key=0)
    assert "keep=" in few.diagnose(truth.x).verdict


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: px.NUTS(target_acceptance="a"), "target_acceptance must lie between 0 and 1"),
        (lambda: px.SGLD(burn_in="x"), "burn_in must lie between 0 and 1"),
        (lambda: px.ImportanceSampling(log_evidence="x"), "log_evidence must be finite"),
        (lambda: px.MCLMC(adjusted="no"), "adjusted must be True or False"),
        (lambda: px.SimulatedAnnealing(path=0), "path must be a whole number"),
    ],
)
def test_arguments_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_what_has_no_draws_is_not_for_arviz(truth):
    point = px.fit(truth.model(), truth.data, px.MaximumAPosteriori(), steps=2, key=0)
    with pytest.raises(ValueError, match="to_arviz: Point has no draws"):
        point.to_arviz()
