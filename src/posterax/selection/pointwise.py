r"""How well a model predicts each example: leave-one-out, WAIC, and held-out data.

Leaving example n out changes the posterior by a factor 1/p(yₙ | w), so that draws wₛ of the
posterior of all data, weighed by it, are draws of the one without n:

    elpd = Σₙ log p(yₙ | D₋ₙ),    p(yₙ | D₋ₙ) = Σₛ rₛₙ p(yₙ | wₛ) / Σₛ rₛₙ,    rₛₙ = 1/p(yₙ | wₛ)

The largest of these weights are smoothed by a Pareto distribution (Vehtari, Gelman and Gabry,
Practical Bayesian model evaluation using leave-one-out cross-validation and WAIC, Statistics and
Computing 2017), whose shape k says whether the estimate of this example can be trusted.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from .._util.checks import whole_number
from .._util.keys import KeyLike
from ..diagnostics.bound import log_ratios
from ..diagnostics.chain_statistics import FEWEST
from ..posteriors import Draws, Posterior
from ..posteriors.draws import normalised, pareto_smooth
from ..posteriors.enumerated import MOST, Enumerated
from ..predictive import Particles, Predictive
from . import evidence as ev
from .score import Score

FEW = 25  # draws below which the tail of their weights says nothing
SAMPLES = 1000  # of posteriors that make them on demand
STATES = 100_000  # of an enumeration that are all counted; beyond, draws
CELLS = 2**26  # and at most so many states × examples: half a gigabyte


class _EveryState(Enumerated):
    """An enumeration with all its states, however improbable.

    Predictions do without the rare ones, but 1/p(yₙ | w) can bring any of them back.
    """

    def states(self) -> np.ndarray:
        return np.flatnonzero(np.isfinite(np.asarray(self.log_probs))).astype(np.int32)

    def particles(self, key: jax.Array, samples: int | None) -> Particles:
        if samples is not None:
            return super().particles(key, samples)
        numbers = self.states()
        return Particles(jnp.asarray(numbers), jnp.asarray(self._probs()[numbers]))


class _Likelihoods(NamedTuple):
    """log p(yₙ | wₛ) as (S, N), with the weights of draws and examples."""

    values: np.ndarray
    log_weights: np.ndarray  # (S,), normalised
    weight: np.ndarray  # (N,)
    examples: str  # which they are, and in which order
    chains: tuple[int, int] | None  # where draws follow one another
    exact: bool  # the draws are all states, with their probabilities
    approximate: bool  # the draws are not of the posterior itself

    @property
    def log_density(self) -> np.ndarray:
        """log p(yₙ | D), with example n among the data."""
        return logsumexp(self.values + self.log_weights[:, None], axis=0)


def loo(
    posterior: Posterior,
    data: ev.Examples,
    *,
    samples: int | None = None,
    key: KeyLike = 0,
    corrected: bool = False,
) -> Score:
    r"""Leave-one-out cross-validation from one fit, by Pareto smoothed importance sampling.

        elpd = Σₙ log p(yₙ | D without n)

    It needs draws of the posterior. Those of an approximation (variational, Laplace) are taken as
    if they were, and the result is that of the approximation; ``corrected`` weighs them by
    p(w, D) / q(w) as well (Magnusson, Andersen, Jonasson and Vehtari, Bayesian leave-one-out
    cross-validation for large data, ICML 2019), which holds in few dimensions: k-hat tells. The
    likelihood is then the network's own, also where predictions are linearised. Draws
    with weights (``px.ImportanceSampling``) count with them, and chains by their effective number
    of draws. An example of weight 2 is scored as two rows that are the same, one left out at a
    time.

    Args:
        posterior: what was fitted to the data.
        data: the data of the fit: ``(x, y)``, ``(x, y, weight)`` or a source of batches.
        samples: posterior draws (default: all stored ones, or 1000).
        key: an int or a JAX key.
        corrected: whether draws of an approximation with a density are weighed towards the
            posterior.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 16)[:, None].astype("float32")
        >>> y = x[:, 0] + 0.3 * np.random.default_rng(0).normal(size=16)
        >>> line = px.networks.MLP(1, 1, (), key=0)
        >>> model = px.Model(line, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.3))
        >>> posterior = px.fit(model, (x, y), px.Conjugate())
        >>> score = px.selection.loo(posterior, (x, y))
        >>> score.ok, score.pointwise.shape, 1 < score.p < 3  # two weights
        (True, (16,), True)
    """
    like = _likelihoods(posterior, data, samples, key, "loo", FEW, corrected)
    out = np.minimum(like.weight, 1)  # of an example that counts more than once, one goes
    ratios = like.log_weights[:, None] - out * like.values
    smooth, khat = ratios - logsumexp(ratios, axis=0), None
    if not like.exact:
        khat = np.zeros(ratios.shape[1])
        efficiency = _relative_efficiency(like)
        for n in np.flatnonzero(np.ptp(ratios, axis=0)):  # where all draws agree there is no tail
            smooth[:, n], khat[n] = pareto_smooth(ratios[:, n], efficiency[n])
    pointwise = logsumexp(smooth + like.values, axis=0)
    return Score(
        "loo", pointwise, like.weight, like.log_density - pointwise,
        khat=khat, draws=len(ratios), approximate=like.approximate, examples=like.examples,
    )  # fmt: skip


def waic(
    posterior: Posterior, data: ev.Examples, *, samples: int | None = None, key: KeyLike = 0
) -> Score:
    r"""The widely applicable information criterion, on the scale of log densities.

        elpd = Σₙ log p(yₙ | D) − Var_w log p(yₙ | w)

    It estimates what leave-one-out does, and says less about when it fails: prefer ``loo``.
    Watanabe, Asymptotic equivalence of Bayes cross validation and widely applicable information
    criterion in singular learning theory, JMLR 2010.

    Args:
        posterior: what was fitted to the data.
        data: the data of the fit: ``(x, y)``, ``(x, y, weight)`` or a source of batches.
        samples: posterior draws (default: all stored ones, or 1000).
        key: an int or a JAX key.

    Example:
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> model, data = curve_model(hidden_sizes=()), curve_data(16)
        >>> posterior = px.fit(model, data, px.NUTS(warmup=50), steps=50, key=0)
        >>> waic, loo = px.selection.waic(posterior, data), px.selection.loo(posterior, data)
        >>> bool(abs(waic.elpd - loo.elpd) < 1)
        True
    """
    like = _likelihoods(posterior, data, samples, key, "waic", 2)
    w = np.exp(like.log_weights)
    variance = w @ np.square(like.values - w @ like.values)
    if not like.exact:
        variance = variance / (1 - w @ w)  # S/(S − 1) where all weigh the same
    return Score(
        "waic", like.log_density - variance, like.weight, variance,
        draws=len(w), approximate=like.approximate, examples=like.examples,
    )  # fmt: skip


def heldout(
    posterior: Posterior, data: ev.Examples, *, samples: int | None = None, key: KeyLike = 0
) -> Score:
    r"""The log predictive density of data that were not used in the fit, Σₙ log p(yₙ | xₙ, D).

    Args:
        posterior: any.
        data: held-out ``(x, y)``, ``(x, y, weight)`` or a source of batches.
        samples: posterior draws (default: all stored ones, or 1000).
        key: an int or a JAX key.

    Example:
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> posterior = px.fit(curve_model(), curve_data(16), px.BayesByBackprop(), steps=5, key=0)
        >>> score = px.selection.heldout(posterior, curve_data(16, key=1))
        >>> score.by, score.pointwise.shape
        ('heldout', (16,))
    """
    samples = _number(posterior, samples)
    values, weight, examples, predictive = _walk(posterior, data, samples, key, "log_prob")
    return Score("heldout", values, weight, draws=predictive.samples, examples=examples)


def _walk(
    posterior: Posterior, data: ev.Examples, samples: int | None, key: KeyLike, of: str
) -> tuple[np.ndarray, np.ndarray, str, Predictive]:
    """This method of the predictives with the examples last, their weights, and which they are.

    The predictive is that of the last part; the draws are the same for all.
    """
    values, weights, targets = [], [], []
    for x, y, weight in ev.parts(data):
        predictive = posterior.predict(x, samples=samples, key=key)
        values.append(getattr(predictive, of)(y).astype(np.float64))
        weights.append(weight)
        targets.append(y)
    digest = ev.examples_digest(targets)
    return np.concatenate(values, axis=-1), np.concatenate(weights), digest, predictive


def _number(posterior: Posterior, samples: int | None) -> int | None:
    if samples is not None:
        return whole_number("samples", samples)
    return None if isinstance(posterior, Draws | Enumerated) else SAMPLES


def _likelihoods(
    posterior: Posterior,
    data: ev.Examples,
    samples: int | None,
    key: KeyLike,
    by: str,
    fewest: int,
    corrected: bool = False,
) -> _Likelihoods:
    every = samples is None
    samples = _number(posterior, samples)
    if corrected:
        posterior = ev.with_density(posterior, "corrected=True")
    exact = False
    if every and isinstance(posterior, Enumerated):
        posterior = _EveryState(**vars(posterior))
        states = len(posterior.states())
        exact = states <= STATES and states * (ev.fitted_examples(posterior) or 1) <= CELLS
        samples = None if exact else MOST
    values, weight, examples, predictive = _walk(posterior, data, samples, key, "log_likelihoods")
    if predictive.samples < fewest and not isinstance(posterior, Enumerated):
        raise ValueError(
            f"{by} needs at least {fewest} draws of the posterior, got {predictive.samples}; "
            "score it on held-out data (by='heldout')"
        )
    ev.refuse_other_data(posterior, float(weight.sum()), by)
    particles = predictive._particles
    with np.errstate(divide="ignore"):
        log_weights = np.log(np.asarray(particles.weights, np.float64))
    if isinstance(posterior, Enumerated):
        if exact:  # also of those whose probability is too small for a number
            log_weights = np.asarray(posterior.log_probs, np.float64)[np.asarray(particles.ids)]
    elif corrected:
        log_weights = log_weights + values @ weight + log_ratios(posterior, particles.ids)
    shape, sampled = None, isinstance(posterior, Enumerated)
    if isinstance(posterior, Draws):
        weighted = posterior.log_weights is not None
        sampled = posterior.chained or weighted
        shape = posterior.shape if posterior.chained and every and not weighted else None
    # of px.Conjugate and px.SMC; that of px.Laplace is an approximation, as it is
    known = posterior.evidence is not None and posterior.evidence.kind in ("exact", "estimate")
    return _Likelihoods(
        values, normalised(log_weights), weight, examples, shape, exact=exact,
        approximate=not (sampled or known or corrected),
    )  # fmt: skip


def _relative_efficiency(like: _Likelihoods) -> np.ndarray:
    """For each example, the effective share of the draws in its mean likelihood."""
    n = like.values.shape[1]
    if like.chains is None or like.chains[1] < FEWEST:
        return np.ones(n)
    from arviz_stats.base import array_stats

    likelihood = np.exp(like.values - like.values.max(0)).reshape(*like.chains, n)
    with np.errstate(all="ignore"):
        ess = array_stats.ess(likelihood, method="mean", chain_axis=0, draw_axis=1)
    share = np.asarray(ess) / len(like.values)
    return np.where(np.isfinite(share) & (share > 0), share, 1.0)
