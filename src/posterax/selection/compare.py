"""Several models side by side, the best first."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import softmax

from .._util.admit import admit_float64
from .._util.checks import one_of
from .._util.keys import KeyLike
from ..diagnostics.diagnosis import warn_of
from ..diagnostics.fitted import is_variational
from ..posteriors import Evidence, Posterior
from .evidence import Examples, elbo, fitted_examples
from .pointwise import heldout, loo, waic
from .score import Comparison, Score, listed, standard_error

Models = Mapping[str, Posterior | Score | Evidence] | Sequence[Posterior | Score | Evidence]

SCORES = {"loo": loo, "waic": waic, "heldout": heldout}


def compare(
    models: Models,
    data: Examples | None = None,
    *,
    by: str | None = None,
    samples: int | None = None,
    key: KeyLike = 0,
) -> Comparison:
    r"""Score several posteriors on the same data; the best first, with paired differences.

    | ``by`` | score | needs |
    | --- | --- | --- |
    | ``"loo"`` | Σ log p(yₙ \| D₋ₙ), see ``px.selection.loo`` | the data of the fits |
    | ``"waic"`` | the same, approximated | the data of the fits |
    | ``"heldout"`` | Σ log p(yₙ \| D) | other data |
    | ``"evidence"`` | log p(D), ``posterior.log_evidence`` | nothing |
    | ``"elbo"`` | a bound on log p(D), see ``px.selection.elbo`` | the data of the fits |

    Differences of the first three are paired by example: their error is √(N Var[difference]), far
    below those of the scores. Their weights are those of stacking, the average of predictive
    densities with the best score (Yao, Vehtari, Simpson and Gelman, Using stacking to average
    Bayesian predictive distributions, Bayesian Analysis 2018). By the evidence they are posterior
    probabilities of the models, all being equally probable before the data; bounds give none.

    Args:
        models: posteriors by name, or in a list; or what ``px.selection``'s functions returned for
            them (scores of one kind, or evidences).
        data: ``(x, y)``, ``(x, y, weight)`` or a source of batches, which is read once for each
            model and has to keep its order.
        by: the score (default: ``"loo"`` with data, ``"evidence"`` without).
        samples: posterior draws for each.
        key: an int or a JAX key.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 32)[:, None].astype("float32")
        >>> y = np.sin(3 * x[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=32)
        >>> prior, likelihood = px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1)
        >>> fits = {}
        >>> for degree in (1, 3):
        ...     line = px.networks.MLP(degree, 1, (), key=0)
        ...     powers = x ** np.arange(1, degree + 1)
        ...     model = px.Model(line, prior, likelihood)
        ...     fits[f"degree {degree}"] = px.fit(model, (powers, y), px.Conjugate())
        >>> comparison = px.compare(fits)
        >>> comparison.best
        'degree 3'
        >>> print(comparison)
                  score  se difference difference_se probability   kind
        evidence
        degree 3    2.7 0.0        0.0           0.0        1.00  exact
        degree 1 -307.6 0.0     -310.3           0.0        0.00  exact
        degree 3 is best, 310.3 ± 0.0 nats ahead of degree 1.
    """
    named, doubts = _named(models), dict[str, str]()
    kinds = {type(model) for model in named.values()}
    if kinds <= {Score} or kinds <= {Evidence}:
        scores = dict(named)
        own = {s.by if isinstance(s, Score) else "evidence" for s in scores.values()}
        if len(own) > 1 or by not in (None, *own):
            of = listed(sorted(own))
            raise ValueError(f"by: these scores are of {of}; only those of one kind compare")
        by = own.pop()
    else:
        if not all(isinstance(model, Posterior) for model in named.values()):
            given = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise TypeError(f"models must be posteriors, or scores of one kind, got {given}")
        by = ("evidence" if data is None else "loo") if by is None else by
        doubts = _judged(named) if by == "elbo" else {}
        scores = {name: _score(model, data, by, samples, key) for name, model in named.items()}
        if by == "evidence":
            _refuse_different_examples({n: fitted_examples(model) for n, model in named.items()})
    found = _pointwise(by, scores) if by in SCORES else _evidences(by, scores)
    return dataclasses.replace(found, warnings=doubts | found.warnings)


def stacking(log_densities: np.ndarray, weight: np.ndarray | None = None) -> np.ndarray:
    r"""Weights v of models that maximise Σₙ weightₙ log Σₖ vₖ exp(log_densitiesₙₖ), v ≥ 0, Σ v = 1.

    Args:
        log_densities: of each example under each model, (N, K).
        weight: how often each example counts (default: once).

    Example:
        >>> import numpy as np
        >>> from posterax.selection import stacking
        >>> halves = np.array([[0.0, -9.0], [-9.0, 0.0]])  # each model knows one of the examples
        >>> stacking(halves).round(3).tolist()
        [0.5, 0.5]

    Reference: Yao, Vehtari, Simpson and Gelman, Using stacking to average Bayesian predictive
    distributions, Bayesian Analysis 2018.
    """
    from scipy.optimize import minimize

    log_densities = admit_float64(log_densities, "log_densities")
    n, k = log_densities.shape
    share = np.ones(n) if weight is None else admit_float64(weight, "weight")
    log_densities, rows = log_densities[share > 0], np.flatnonzero(share > 0)
    share = share[share > 0] / share.sum()
    best = log_densities.max(1)  # NaN where there is one
    if not np.isfinite(best).all():
        row = int(np.argmin(np.isfinite(best)))
        what = "a density of 0 under every model" if best[row] == -np.inf else "no finite density"
        raise ValueError(f"example {rows[row]} has {what}: leave it out, or change a likelihood")
    density = np.exp(log_densities - best[:, None])

    def loss(v: np.ndarray) -> tuple[float, np.ndarray]:
        mixed = density @ v
        return -float(share @ np.log(mixed)), -(share / mixed) @ density

    result = minimize(
        loss, np.full(k, 1 / k), jac=True, method="SLSQP", bounds=[(1e-12, 1)] * k,
        constraints={"type": "eq", "fun": lambda v: v.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-12, "maxiter": 500},
    )  # fmt: skip
    v = np.where(result.x > 1e-8, result.x, 0.0)
    return v / v.sum()


def _named(models: Models) -> dict[str, Any]:
    if isinstance(models, Sequence) and not isinstance(models, str | Evidence):
        models = {f"model {i}": model for i, model in enumerate(models)}
    if not isinstance(models, Mapping):
        given = type(models).__name__
        raise TypeError(f"models must be a dictionary of posteriors, or a list, got {given}")
    if not models:
        raise ValueError("models is empty: there is nothing to compare")
    return {str(name): model for name, model in models.items()}


def _judged(models: dict[str, Posterior]) -> dict[str, str]:
    """Refuse a variational fit that has not converged; what else is wrong with one, by name."""
    doubts = {}
    for name, posterior in models.items():
        if posterior.record is None or not is_variational(posterior):
            continue
        diagnosis = posterior.diagnose()
        words = warn_of(diagnosis)
        if "not converged" in diagnosis.kinds:
            raise ValueError(
                f"models: {name} has not converged, so its ELBO says nothing about the model. "
                f"{words} px.selection.elbo(posterior, data) gives its value as it is"
            )
        if words is not None:
            doubts[name] = words
    return doubts


def _score(
    posterior: Posterior, data: Examples | None, by: str, samples: int | None, key: KeyLike
) -> Score | Evidence:
    one_of("by", by, (*SCORES, "elbo", "evidence"))
    if by == "evidence":
        return posterior.log_evidence
    if data is None:
        other = "data that the fits have not seen" if by == "heldout" else "the data of the fits"
        raise ValueError(f"by={by!r} needs data=(x, y), {other}")
    if by == "elbo":
        return elbo(posterior, data, samples=samples or 100, key=key)
    return SCORES[by](posterior, data, samples=samples, key=key)


def _pointwise(by: str, scores: dict[str, Score]) -> Comparison:
    """Differences are by example: the nth has to be the same one for all."""
    _refuse_different_examples({name: len(s.pointwise) for name, s in scores.items()})
    if len({s.examples for s in scores.values() if s.examples}) > 1:
        raise ValueError(
            "models: their scores are of different examples, or in another order; use arrays, or a "
            "source of batches that does not shuffle"
        )
    weights = [s.weight for s in scores.values()]
    if any(not np.array_equal(weights[0], other) for other in weights):
        raise ValueError("models: their examples have different weights; score them anew")
    names = sorted(scores, key=lambda name: -scores[name].elpd)
    ranked = [scores[name] for name in names]
    best, weight = ranked[0], ranked[0].weight
    stacked = stacking(np.stack([s.pointwise for s in ranked], axis=1), weight)
    gaps = [score.pointwise - best.pointwise for score in ranked]
    return Comparison(
        by, names, ranked, np.array([float(weight @ gap) for gap in gaps]),
        np.array([0.0, *(standard_error(gap, weight) for gap in gaps[1:])]), stacked,
        {name: s.doubts for name, s in zip(names, ranked, strict=True) if not s.ok},
    )  # fmt: skip


def _refuse_different_examples(counts: Mapping[str, float | None]) -> None:
    known = {name: count for name, count in counts.items() if count is not None}
    if known and not np.allclose(list(known.values()), next(iter(known.values()))):
        numbers = ", ".join(f"{name} {count:g}" for name, count in known.items())
        raise ValueError(f"models: fitted to different numbers of examples ({numbers})")


def _evidences(by: str, scores: dict[str, Evidence]) -> Comparison:
    names = sorted(scores, key=lambda name: -scores[name].value)
    ranked = [scores[name] for name in names]
    values, kinds = np.array([s.value for s in ranked]), {s.kind for s in ranked}
    notes = {
        "bound": "a bound, and its evidence may be higher",
        "approximation": "an approximation, of unknown distance from its evidence",
    }
    mixed = {
        name: f"{notes[s.kind]}; the others are {listed(sorted(kinds - {s.kind}))}"
        for name, s in zip(names, ranked, strict=True)
        if len(kinds) > 1 and s.kind in notes
    }
    return Comparison(
        by, names, ranked, values - values[0],
        np.array([0.0, *(math.hypot(s.error, ranked[0].error) for s in ranked[1:])]),
        np.full(len(values), np.nan) if "bound" in kinds else softmax(values), mixed,
    )  # fmt: skip
