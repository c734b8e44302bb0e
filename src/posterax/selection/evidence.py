r"""The data that models are compared on, and the evidence lower bound of a posterior on them.

log p(D) = log E_q[p(D | w) p(w) / q(w)] ≥ E_q[log p(D | w) + log p(w) − log q(w)]

with equality only where q is the posterior; what is lost is KL(q ‖ p(w | D)).
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import PyTree

from .._util.admit import check_finite
from .._util.checks import whole_number
from .._util.keys import KeyLike
from .._util.memory import refuse_draws
from ..data import Stream, as_stream, is_batches, unpack
from ..diagnostics.bound import draw_by_draw, has_density, held, mean_of_pairs, unlinearised
from ..diagnostics.fitted import is_variational
from ..diagnostics.measures import constant_nll, few_rows
from ..posteriors import Evidence, LaplaceGaussian, LowRankGaussian, Posterior

ABSURD = 10.0  # nats a row below a constant prediction, which is no score of a model
# (x, y), (x, y, weight) or a source of such batches
Examples: TypeAlias = tuple[PyTree, ...] | Iterable[tuple[PyTree, ...]] | Stream


def elbo(posterior: Posterior, data: Examples, *, samples: int = 100, key: KeyLike = 0) -> Evidence:
    r"""A lower bound on log p(D) from any posterior with a density, with its Monte Carlo error.

        ELBO(q) = E_q[log p(D | w) + log p(w) − log q(w)] = log p(D) − KL(q ‖ p(w | D))

    It is the score that variational inference maximises, and compares models as well as their q
    are equally close to their posteriors. Weights that are points in q count as given: the bound
    is on the evidence of the others. The likelihood is that of the network itself, also where
    predictions are linearised (``px.Laplace``).

    Args:
        posterior: of a method whose posterior has a density (``posterior.log_prob``).
        data: what it was fitted to: ``(x, y)``, ``(x, y, weight)`` or a source of batches.
        samples: draws of q. The error falls with their root.
        key: an int or a JAX key.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 16)[:, None].astype("float32")
        >>> line = px.networks.MLP(1, 1, (), key=0)
        >>> model = px.Model(line, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.3))
        >>> posterior = px.fit(model, (x, x[:, 0]), px.Conjugate())
        >>> bound = px.selection.elbo(posterior, (x, x[:, 0]))
        >>> bound.kind
        'bound'
        >>> abs(bound.value - posterior.log_evidence.value) < 0.01  # q is the posterior
        True

    Reference: Jordan, Ghahramani, Jaakkola and Saul, An introduction to variational methods for
    graphical models, Machine Learning 1999.
    """
    posterior = with_density(posterior, "elbo")
    samples = whole_number("samples", samples, least=2)
    refuse_draws("samples", posterior.most(samples))
    found, total, constant = None, 0.0, 0.0
    for x, y, weight in parts(data):
        rows = held(posterior, x, y, weight)
        part = draw_by_draw(posterior, rows, samples=samples, key=key)
        if found is not None:  # the draws are the same for all parts
            part = part._replace(log_likelihoods=part.log_likelihoods + found.log_likelihoods)
        found, total = part, total + float(weight.sum())
        if not is_variational(posterior):
            constant += constant_nll(posterior, *few_rows(rows)) * float(weight.sum())
    assert found is not None
    refuse_other_data(posterior, total, "elbo")
    value, error = mean_of_pairs(found.log_likelihoods - found.kl, found.weights)
    _refuse_absurd(posterior, value, -constant, total)
    return Evidence(value, error, "bound")


def _refuse_absurd(posterior: Posterior, value: float, constant: float, total: float) -> None:
    """Name what makes a bound worthless, of draws that no ELBO was maximised for."""
    if np.isfinite(value) and (is_variational(posterior) or value > constant - ABSURD * total):
        return
    method = posterior.record.method if posterior.record is not None else ""
    why = "its log density or the prior's is not finite at its draws"
    if isinstance(posterior, LaplaceGaussian):
        why = (
            "draws of the Gaussian, with the network's own likelihood, leave the mode that it "
            "was made for; posterior.log_evidence is the score of px.Laplace"
        )
    elif isinstance(posterior, LowRankGaussian) and not is_variational(posterior):
        why = (
            "the covariance of SWAG's steps is of low rank, and so narrow in most directions "
            "that its KL from the prior is huge"
        )
    raise ValueError(
        f"elbo: the bound of this posterior of {method or type(posterior).__name__} is "
        f"{value:,.0f} nats, that of a constant prediction {constant:,.0f}: {why}. Compare "
        "by='loo' or 'heldout'"
    )


def with_density(posterior: Posterior, name: str) -> Posterior:
    """A q with a density; where predictions are linearised, with the network's own likelihood.

    p(w, D) / q(w) with a linearised likelihood would be near 1, however far off the network is.
    """
    if not has_density(posterior):
        method = posterior.record.method if posterior.record is not None else ""
        raise ValueError(
            f"{name}: {method or type(posterior).__name__} gives a posterior without a density; "
            "fit with px.BayesByBackprop, px.IVON or px.Laplace, or compare by='loo' or 'heldout'"
        )
    return unlinearised(posterior)


# -- data


def parts(data: Examples) -> Iterator[tuple[PyTree, np.ndarray, np.ndarray]]:
    """``(x, y, weight)`` of arrays, or of each batch of a source of batches.

    Example:
        >>> import numpy as np
        >>> from posterax.selection.evidence import parts
        >>> x, y = np.zeros((4, 1)), np.zeros(4)
        >>> [len(part[1]) for part in parts([(x, y), (x, y)])]
        [4, 4]
    """
    one = isinstance(data, tuple) or (isinstance(data, list) and not is_batches(data))
    batches: Iterable[Any] = [data] if one else as_stream(data).source
    for batch in batches:
        x, y, weight = unpack(batch)
        check_finite("x", x)
        check_finite("y", y)
        yield x, np.asarray(y), np.asarray(weight, np.float64)


def examples_digest(targets: Sequence[np.ndarray]) -> str:
    """A digest of these targets in this order, whatever their precision and batches."""
    flat = [np.ravel(y).astype(np.float32) for y in targets]
    return hashlib.sha256(np.concatenate(flat).tobytes()).hexdigest()


def fitted_examples(posterior: Posterior) -> float | None:
    """How many examples (the sum of their weights) the posterior was fitted to, where known."""
    settings = posterior.record.settings if posterior.record is not None else {}
    return settings.get("examples")


def refuse_other_data(posterior: Posterior, total: float, by: str) -> None:
    """Refuse data that cannot be those of the fit."""
    known = fitted_examples(posterior)
    if known is not None and not np.isclose(known, total):
        raise ValueError(
            f"data: {by} needs the data of the fit, {known:g} examples, and got {total:g}; "
            "by='heldout' scores predictions on other data"
        )
