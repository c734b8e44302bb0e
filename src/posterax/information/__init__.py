r"""Information theory: of probability vectors, and of numpyro distributions.

Vectors have their outcomes on the last axis, batches in front; results are floats or arrays.
For distributions they are ``Measured(value, error, how)``: exact where numpyro has a closed form or
the values can be listed, by quadrature in one dimension, by Monte Carlo otherwise.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from numpyro.distributions import Distribution

from .._util.keys import KeyLike
from . import distributions as ds
from . import vectors as vs
from .expectations import WAYS, Measured

Given: TypeAlias = ArrayLike | Distribution

__all__ = [
    "Measured",
    "cross_entropy",
    "entropy",
    "information_gain",
    "js_divergence",
    "kl_divergence",
    "mutual_information",
    "self_information",
]


def self_information(
    probability: Given, value: ArrayLike | None = None, *, unit: str = "nats"
) -> Any:
    r"""I(x) = −log P(X = x): how much the event tells; the rarer the more.

    Independent events add up: two heads tell twice as much as one.

    Args:
        probability: that of the event, or many of them; or a numpyro distribution of X.
        value: x, where a distribution is given; a density's information may be negative.
        unit: ``"nats"`` or ``"bits"``.

    Example:
        >>> import posterax as px
        >>> px.information.self_information([1.0, 0.5, 0.25], unit="bits")
        array([0., 1., 2.])

    Reference:
        Shannon, A Mathematical Theory of Communication, 1948.
    """
    if isinstance(probability, Distribution):
        if value is None:
            raise TypeError("value must say which x of the distribution, as in (distribution, 2.0)")
        return vs.plain(ds.self_information(probability, value), unit)
    if value is not None:
        raise TypeError("value goes with a numpyro distribution; a probability is all it takes")
    p = vs.numbers("probability", probability)
    if not np.all((p >= 0) & (p <= 1)):
        raise ValueError(f"probability must lie between 0 and 1, got {p.min():.3g} … {p.max():.3g}")
    with np.errstate(divide="ignore"):
        return vs.plain(np.abs(np.log(p)), unit)  # -0.0 for what is certain looks odd


def entropy(p: Given, *, unit: str = "nats", samples: int = 10_000, key: KeyLike = 0) -> Any:
    r"""H(P) = E_P[−log p(x)]: what an outcome tells on average.

    0 for a certain outcome, log K for K equal ones; a density's may be negative.

    Args:
        p: probabilities (…, K), or a numpyro distribution.
        unit: ``"nats"`` or ``"bits"``.
        samples: draws of a distribution that leaves only Monte Carlo.
        key: of those draws.

    Example:
        >>> import numpyro.distributions as dist
        >>> import posterax as px
        >>> px.information.entropy([0.5, 0.25, 0.25], unit="bits")
        1.5
        >>> px.information.entropy(dist.Poisson(3.0)).how
        'sum'
    """
    if isinstance(p, Distribution):
        return _in_unit(ds.entropy(p, samples, key), unit)
    return vs.plain(vs.entropy(vs.probabilities("p", p)), unit)


def cross_entropy(
    p: Given, q: Given, *, unit: str = "nats", samples: int = 10_000, key: KeyLike = 0
) -> Any:
    r"""H(P, Q) = E_P[−log q(x)] = H(P) + KL(P ‖ Q): what outcomes of P tell someone who expects Q.

    Arguments as for ``entropy``; infinite where P has mass and Q none.

    Example:
        >>> import posterax as px
        >>> px.information.cross_entropy([0.5, 0.5], [0.25, 0.75], unit="bits")
        1.207...
    """
    return _of_two("cross_entropy", p, q, unit, samples, key)


def kl_divergence(
    p: Given, q: Given, *, unit: str = "nats", samples: int = 10_000, key: KeyLike = 0
) -> Any:
    r"""KL(P ‖ Q) = E_P[log p(x) / q(x)] = H(P, Q) − H(P) ≥ 0, and 0 only for P = Q.

    Arguments as for ``entropy``; infinite where P has mass and Q none. It is not symmetric: a Q
    fitted by KL(P ‖ Q) covers all of P, one fitted by KL(Q ‖ P) stays inside a part of it.

    Example:
        >>> import numpyro.distributions as dist
        >>> import posterax as px
        >>> px.information.kl_divergence([0.5, 0.5], [1.0, 0.0])
        inf
        >>> p, q = dist.Laplace(0.0, 1.0), dist.Normal(0.0, 1.0)
        >>> divergence = px.information.kl_divergence(p, q)
        >>> round(divergence.value, 6), divergence.how
        (0.225791, 'quadrature')

    Reference:
        Kullback and Leibler, On Information and Sufficiency, 1951.
    """
    return _of_two("kl_divergence", p, q, unit, samples, key)


def js_divergence(
    p: Given, q: Given, *, unit: str = "nats", samples: int = 10_000, key: KeyLike = 0
) -> Any:
    r"""JS(P, Q) = ½ KL(P ‖ M) + ½ KL(Q ‖ M) with M = ½ (P + Q): symmetric, between 0 and log 2.

    Arguments as for ``entropy``.

    Example:
        >>> import posterax as px
        >>> px.information.js_divergence([1.0, 0.0], [0.0, 1.0], unit="bits")
        1.0

    Reference:
        Lin, Divergence Measures Based on the Shannon Entropy, 1991.
    """
    return _of_two("js_divergence", p, q, unit, samples, key)


def mutual_information(
    joint: Given, first: int | Sequence[int] | None = None, *, unit: str = "nats"
) -> Any:
    r"""I(X; Y) = KL(P_XY ‖ P_X P_Y) = H(X) + H(Y) − H(X, Y): what one tells about the other.

    Args:
        joint: a table of P(x, y), (…, outcomes of X, outcomes of Y); or a multivariate normal,
            for which it is ½ log |Σ_XX| |Σ_YY| / |Σ|.
        first: the coordinates of a multivariate normal that are X (an int, or several); the
            others are Y.
        unit: ``"nats"`` or ``"bits"``.

    Example:
        >>> import posterax as px
        >>> px.information.mutual_information([[0.5, 0.0], [0.0, 0.5]], unit="bits")
        1.0
    """
    if isinstance(joint, Distribution):
        value = ds.mutual_information(joint, first)
        return _in_unit(Measured(value, np.zeros_like(value), WAYS[0]), unit)
    if first is not None:
        raise TypeError("first goes with a distribution; a table has X and Y on its last two axes")
    p = vs.probabilities("joint", joint, axes=2)
    # logarithms one by one: the product of two tiny margins would be zero
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(p) - np.log(p.sum(-1, keepdims=True)) - np.log(p.sum(-2, keepdims=True))
    return vs.plain(np.maximum((p * np.where(p > 0, ratio, 0.0)).sum((-2, -1)), 0.0), unit)


def information_gain(
    predictions: ArrayLike, weights: ArrayLike | None = None, *, unit: str = "nats"
) -> Any:
    r"""I(y; w) = H(Σ_s ω_s p_s) − Σ_s ω_s H(p_s): what a label would tell about the weights.

    The score of active learning by disagreement (BALD), and the epistemic part of a classifier's
    ``px.Predictive``. For two draws of equal weight it is their Jensen–Shannon divergence.

    Args:
        predictions: class probabilities for each draw of a posterior, (draws, …, classes).
        weights: of the draws, summing to one; equal by default.
        unit: ``"nats"`` or ``"bits"``.

    Example:
        >>> import posterax as px
        >>> agree, differ = [[0.5, 0.5], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]]
        >>> px.information.information_gain(agree, unit="bits")
        0.0
        >>> px.information.information_gain(differ, unit="bits")
        1.0

    Reference:
        Houlsby, Huszár, Ghahramani and Lengyel, Bayesian Active Learning for Classification and
        Preference Learning, 2011.
    """
    p = vs.probabilities("predictions", predictions)
    if p.ndim < 2:
        raise ValueError(f"predictions must have shape (draws, …, outcomes), got {p.shape}")
    w = np.full(len(p), 1 / len(p)) if weights is None else vs.probabilities("weights", weights)
    if w.shape != (len(p),):
        raise ValueError(f"weights must be one for each of the {len(p)} draws, got {w.shape}")
    gain = vs.entropy(np.tensordot(w, p, 1)) - np.tensordot(w, vs.entropy(p), 1)
    return vs.plain(np.maximum(gain, 0.0), unit)


def _of_two(name: str, p: Given, q: Given, unit: str, samples: int, key: KeyLike) -> Any:
    kinds = isinstance(p, Distribution), isinstance(q, Distribution)
    if all(kinds):
        return _in_unit(getattr(ds, name)(p, q, samples, key), unit)
    if any(kinds):
        raise TypeError(
            "p and q must both be arrays or both distributions; "
            f"write numpyro.distributions.Categorical(probs={'pq'[kinds.index(False)]})"
        )
    return vs.plain(getattr(vs, name)(*vs.pair(p, q)), unit)


def _in_unit(measured: Measured, unit: str) -> Measured:
    return Measured(vs.plain(measured.value, unit), vs.plain(measured.error, unit), measured.how)
