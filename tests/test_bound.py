"""The ELBO as a number: against closed forms, by hand, in blocks, and compiled once."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posterax as px
from posterax._util.special import inverse_softplus
from posterax.diagnostics import bound as bd
from posterax.diagnostics.bound import bound, bound_of, draw_by_draw, held
from posterax.posteriors import MeanFieldGaussian
from posterax.predictive import Targets
from tests.conjugate import NOISE, conjugate

pytestmark = pytest.mark.usefixtures("hasty_module")

TRUTH = conjugate(40)
MODEL = TRUTH.model().for_targets((1,), np.dtype("float32"))
ONE = Targets((), (1,))


def mean_field(mean, deviation, model=MODEL) -> MeanFieldGaussian:
    tree = lambda a: jax.tree.map(  # noqa: E731
        lambda _: jnp.asarray(a, jnp.float32), model.parameters
    )
    rho = inverse_softplus(jnp.asarray(deviation, jnp.float32))
    return MeanFieldGaussian(model, model.network.state, ONE, mu=tree(mean), rho=tree(rho))


Q = mean_field(TRUTH.mean + 0.1, np.array([0.1, 0.2, 0.15]))
ROWS = held(Q, *TRUTH.data)


def exact_parts() -> tuple[float, float]:
    """E_q log p(D | w) and KL(q ‖ p) by hand."""
    x, y = (np.asarray(a, np.float64) for a in TRUTH.data)
    mean, variance = TRUTH.mean + 0.1, np.square([0.1, 0.2, 0.15])
    squares = np.square(y - x @ mean) + np.square(x) @ variance
    expected = -0.5 * np.sum(squares / NOISE**2 + np.log(2 * np.pi * NOISE**2))
    kl = 0.5 * np.sum(np.square(mean) + variance - 1 - np.log(variance))
    return float(expected), float(kl)


def test_against_closed_forms():
    found = bound(Q, ROWS, samples=4000, key=0, apart=False)
    expected, kl = exact_parts()
    assert found.kl == pytest.approx(kl, rel=1e-5)
    assert found.value == pytest.approx(expected - kl, abs=4.5 * found.error)
    assert found.error < 0.2
    assert found.value == pytest.approx(-40 * found.nll - found.kl, rel=1e-6)
    # log p(D) − KL(q ‖ p(w | D)) is the same number
    away, variance = np.full(3, 0.1), np.square([0.1, 0.2, 0.15])
    precision = np.linalg.inv(TRUTH.covariance)
    divergence = 0.5 * (
        np.trace(precision * variance) + away @ precision @ away - 3
        + np.linalg.slogdet(TRUTH.covariance)[1] - np.log(variance).sum()
    )  # fmt: skip
    assert expected - kl == pytest.approx(TRUTH.log_evidence - divergence, rel=1e-5)


def test_the_predictive_is_the_mixture_of_the_draws():
    found = bound(Q, ROWS, samples=100, key=3, apart=False)
    predictive = Q.predict(TRUTH.x, samples=100, key=3)
    assert found.predictive_nll == pytest.approx(-predictive.log_prob(TRUTH.y).mean(), rel=1e-5)
    each = predictive.log_likelihoods(TRUTH.y)
    assert found.nll == pytest.approx(-each.mean(), rel=1e-5)
    assert found.predictive_nll < found.nll


def test_the_same_as_px_selection_elbo():
    found = bound(Q, ROWS, samples=30, key=1, apart=False)
    assert px.selection.elbo(Q, TRUTH.data, samples=30, key=1)[:2] == (found.value, found.error)


def test_weights_count_and_padding_does_not():
    x, y = TRUTH.data
    twice = np.where(np.arange(40) < 7, 2.0, 1.0)
    rows = np.repeat(np.arange(40), twice.astype(int))
    a = bound(Q, held(Q, x, y, twice), samples=10, key=0, apart=False)
    b = bound(Q, held(Q, x[rows], y[rows]), samples=10, key=0, apart=False)
    assert b == pytest.approx(a, rel=1e-5, nan_ok=True)
    # a row without weight may be impossible
    broken = dataclasses.replace(ROWS, y=jnp.full_like(ROWS.y, 1e30).at[:39].set(ROWS.y[:39]))
    broken = dataclasses.replace(broken, weight=ROWS.weight.at[39:].set(0))
    assert np.isfinite(bound(Q, broken, samples=4, key=0, apart=False).value)


def test_blocks_of_rows_and_groups_of_draws(monkeypatch):
    whole = bound(Q, ROWS, samples=7, key=0, apart=False)
    monkeypatch.setattr(bd, "default_block_bytes", lambda: 12 * 2 * 15)
    monkeypatch.setattr(bd, "FEW_ROWS", 1)
    np.testing.assert_allclose(
        bound(Q, ROWS, samples=7, key=0, apart=False)[:5], whole[:5], rtol=1e-5
    )


def test_one_program_for_any_number_of_draws_and_any_values():
    bound(Q, ROWS, samples=2, key=0, apart=False)
    programs = bd._totals.programs()
    assert [bound(Q, ROWS, samples=n, key=n, apart=False).samples for n in (3, 100)] == [3, 100]
    other = mean_field(np.zeros(3), np.ones(3))
    bound(other, held(other, TRUTH.x, 2 * TRUTH.y), samples=50, key=jax.random.key(1), apart=False)
    assert bd._totals.programs() == programs


def test_k_hat_tells_a_good_q_from_a_narrow_one():
    assert np.isnan(bound(Q, ROWS, samples=49, key=0, apart=False).k_hat)
    exact = px.fit(TRUTH.model(), TRUTH.data, px.Conjugate())
    std = np.sqrt(np.diag(TRUTH.covariance))
    narrow = bound(mean_field(TRUTH.mean, 0.2 * std), ROWS, samples=400, key=0, apart=False)
    wide = bound(mean_field(TRUTH.mean, 2 * std), ROWS, samples=400, key=0, apart=False)
    assert wide.k_hat < 0.5
    assert narrow.k_hat > 0.7
    assert bound(exact, ROWS, samples=10, key=0, apart=False).value == pytest.approx(
        TRUTH.log_evidence, abs=1e-3
    )


def test_points_do_not_count():
    network = px.networks.MLP(3, 1, (), key=0)
    model = px.Model(
        network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(NOISE), where="*.weight"
    )
    posterior = px.fit(model, TRUTH.data, px.BayesByBackprop(), steps=5, key=0)
    mean, std = (np.asarray(t.network.layers[0].weight) for t in posterior.moments())
    found = bound(posterior, held(posterior, *TRUTH.data), samples=60, key=0, apart=False)
    kl = 0.5 * np.sum(mean**2 + std**2 - 1 - 2 * np.log(std))
    assert found.kl == pytest.approx(kl, rel=1e-5)


def test_every_family_with_a_density():
    """log q − log p at the draws, in the place of a closed form; members weigh the same."""
    model = px.Model(
        px.networks.MLP(3, 1, (), key=0), px.priors.ScaleMixture(), px.likelihoods.Gaussian(NOISE)
    )
    for method in (
        px.BayesByBackprop(family="full"), px.BayesByBackprop(family="radial"),
        px.BayesByBackprop(), px.IVON(),
    ):  # fmt: skip
        posterior = px.fit(model, TRUTH.data, method, steps=5, key=0)
        found = bound(posterior, held(posterior, *TRUTH.data), samples=8, key=0, apart=False)
        w = posterior.antithetic(jax.random.split(jax.random.key(0))[0], 8)
        sets = [posterior.parameters(jax.tree.map(lambda a, i=i: a[i], w.ids)) for i in range(8)]
        each = [model_joint(posterior, s) - posterior.log_prob(s) for s in sets]
        assert found.value == pytest.approx(float(np.mean(each)), rel=1e-4)


def model_joint(posterior, parameters):
    return posterior.model.log_joint(parameters, *TRUTH.data)


def test_parts_can_be_added():
    x, y = TRUTH.data
    parts = [draw_by_draw(Q, held(Q, x[i::2], y[i::2]), samples=6, key=0) for i in (0, 1)]
    total = parts[0]._replace(
        log_likelihoods=parts[0].log_likelihoods + parts[1].log_likelihoods,
        predictive=parts[0].predictive + parts[1].predictive,
    )
    np.testing.assert_allclose(
        bound_of(total, 40)[:5], bound(Q, ROWS, samples=6, key=0, apart=False)[:5], rtol=1e-5
    )


def test_rows_apart_give_the_same_bound_with_a_smaller_error():
    x = np.random.default_rng(0).normal(size=(60, 3)).astype("float32")
    y = x[:, 0] - x[:, 1]
    model = px.Model(
        px.networks.MLP(3, 1, (20,), key=0), px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.5)
    )
    posterior = px.fit(model, (x, y), px.BayesByBackprop(), steps=300, key=0)
    rows = held(posterior, x, y)
    apart, together = (
        bound(posterior, rows, samples=1000, key=0, apart=how) for how in (True, False)
    )
    assert apart.error < 0.7 * together.error
    assert abs(apart.value - together.value) < 5 * together.error
    assert apart.kl == pytest.approx(together.kl)
    assert np.isnan(apart.k_hat)
