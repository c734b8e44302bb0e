r"""Remove the weights of which a posterior knows least."""

from collections.abc import Callable
from math import isfinite, isqrt
from typing import Any

import numpy as np
from jaxtyping import PyTree

from .._util.checks import whole_number
from .._util.interrupts import check_interrupt, heeded, raise_on_interrupt
from .._util.keys import KeyLike
from .._util.progress import Bar
from ..fitting.validation import check_validation
from ..metrics import negative_log_likelihood
from ..networks.parts import Where
from ..networks.sparse import Masks
from ..posteriors import Posterior
from .families import check_family, removed, silenced
from .ranking import SIGNAL_TO_NOISE, Ranking, scores

RESOLUTION = 0.01  # of the number of weights that stay, where a search stops


def prune(
    posterior: Posterior,
    fraction: float | None = None,
    *,
    threshold: float | None = None,
    tolerance: float | None = None,
    validation: tuple[PyTree, ...] | None = None,
    by: str = SIGNAL_TO_NOISE,
    scope: str = "global",
    where: Where | None = None,
    samples: int = 100,
    key: KeyLike = 0,
    progress: bool | None = None,
) -> Posterior:
    r"""Set the weights with the lowest signal-to-noise ratio |μ| / σ to the constant 0.

    What comes back is a posterior of the same family over the weights that are left, of a network
    in which the others do not exist ([`px.networks.sparse`][posterax.networks.sparse]). It
    predicts, it is saved with these weights and a mask of bits, its model can be fitted on with
    the mask as it is (``px.fit(pruned.model, data, method, init=pruned)``), and it can be pruned
    again. The weights that are left keep their distribution: in a correlated Gaussian, their
    marginal one.

    Give one of ``fraction``, ``threshold`` and ``tolerance``.

    Args:
        posterior: of Bayes by Backprop (any family but radial), IVON, SWAG, a diagonal Laplace
            approximation, an ensemble or a chain; a point estimate ``by="magnitude"``.
        fraction: share of the weights that are 0 afterwards, of the network as it was before any
            pruning (and before ``compact``, unless it was fitted since); exact to the weight,
            those with equal ratios in the order of the arrays.
        threshold: remove what is below it: decibels, 10 log₁₀(|μ| / σ), as in
            ``px.plot.signal_to_noise`` (|μ| itself ``by="magnitude"``).
        tolerance: find the largest fraction with which the NLL of ``validation`` grows by no more
            than this, in nats per example, by bisection: the fraction that is chosen has been
            measured, and no larger one would do if the NLL grows with the fraction. The number of
            weights left is known to 1 %, and never 0: ``fraction=1.0`` removes all.
        validation: held-out ``(x, y)`` for ``tolerance``, not the test set.
        by: ``"signal_to_noise"``, or ``"magnitude"``: |μ|, whatever the deviation.
        scope: ``"global"``: the lowest of all; ``"layer"``: the same fraction of every layer, but
            that a layer which lost more by an earlier pruning stays as it is.
        where: which arrays may lose weights, as in ``px.Model`` (default: all that have a prior,
            biases among them; ``"*.weight"`` spares those). Shares are of these arrays.
        samples: posterior draws for each look at ``validation``, the same for all of them.
        key: an int or a JAX key, of these draws.
        progress: show a bar of the search (default: where someone is watching). Ctrl-C ends it
            with the best fraction so far.

    Example:
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> model, data = curve_model(hidden_sizes=(16,)), curve_data(32)
        >>> posterior = px.fit(model, data, px.BayesByBackprop(), epochs=20, key=0)
        >>> pruned = px.prune(posterior, 0.75)
        >>> posterior.model.bayesian_size, pruned.model.bayesian_size  # and the noise's scale
        (50, 13)
        >>> print(px.pruning.report(pruned))
        array            weights  kept  removed
        ...
        all                   49    12    75.5%

    Reference:
        Blundell, Cornebise, Kavukcuoglu and Wierstra, *Weight uncertainty in neural networks*,
        ICML 2015, section 5.1.
    """
    given = {"fraction": fraction, "threshold": threshold, "tolerance": tolerance}
    chosen = [name for name, value in given.items() if value is not None]
    if len(chosen) != 1:
        got = " and ".join(chosen) or "none"
        raise ValueError(f"prune needs one of fraction=, threshold= and tolerance=, got {got}")
    if (tolerance is None) != (validation is None):
        raise ValueError("tolerance= goes with validation=(x, y), the held-out data it is for")
    check_family(posterior)
    ranking = Ranking(posterior, scores(posterior, by, where), scope)
    about: dict[str, Any] = {"by": by, "scope": scope}
    if fraction is not None:
        fraction = _number("fraction", fraction, most=1.0)
        if round(fraction * ranking.total) < ranking.gone:
            raise ValueError(
                f"fraction={fraction} is of all {ranking.total:,} weights, and "
                f"{ranking.gone / ranking.total:.4f} of them are gone already: give a larger one"
            )
        masks = ranking.masks(fraction)
    elif threshold is not None:
        if not isfinite(threshold):
            raise ValueError(f"threshold must be a finite number of decibels, got {threshold!r}")
        masks, about["threshold"] = ranking.above(threshold), float(threshold)
    else:
        tolerance = _number("tolerance", tolerance)
        watch = check_validation(validation, posterior.model)
        assert watch is not None
        samples = whole_number("samples", samples)

        def nll(masks: Masks) -> float:
            predictive = silenced(posterior, masks).predict(watch.x, samples=samples, key=key)
            return negative_log_likelihood(predictive, watch.y, weight=watch.weight)

        fraction, curve = _search(ranking, nll, tolerance, progress)
        masks = ranking.masks(fraction)
        about |= {"tolerance": tolerance, "curve": [list(point) for point in curve]}
    if fraction is not None:
        about["fraction"] = fraction
    return removed(posterior, masks, about)


def _number(name: str, value: float | None, most: float = np.inf) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not 0 <= value <= most or not isfinite(value):
        bound = f"between 0 and {most:g}" if isfinite(most) else "0 or more"
        raise ValueError(f"{name} must be {bound}, got {value!r}")
    return float(value)


def _search(
    ranking: Ranking, nll: Callable[[Masks], float], tolerance: float, progress: bool | None
) -> tuple[float, list[tuple[float, float]]]:
    """The largest fraction within tolerance, and all (fraction, NLL) that were measured."""
    total = ranking.total
    enough, few = total - ranking.gone, 0  # numbers of weights that stay
    curve: dict[float, float] = {}
    with Bar(progress) as bar:
        looks = int(np.ceil(np.log2(max(np.log(max(enough, 2)) / RESOLUTION, 2)))) + 1
        bar.phase("pruning", looks, 0)
        first = 1 - enough / total
        curve[first] = nll({})
        bound = curve[first] + tolerance
        try:
            with raise_on_interrupt():
                while enough - few > max(1, RESOLUTION * enough):
                    check_interrupt()
                    # halfway in the logarithm: from 98 to 99 % is as far as from 0 to 50
                    count = min(max(isqrt(enough * max(few, 1)), few + 1), enough - 1)
                    share = 1 - count / total
                    curve[share] = nll(ranking.masks(share))
                    if curve[share] <= bound:
                        enough = count
                    else:  # NaN too
                        few = count
                    newest = {"fraction": np.array([share]), "nll": np.array([curve[share]])}
                    bar.update(min(len(curve), looks), newest)
        except KeyboardInterrupt:
            heeded()  # what was measured so far holds
    return 1 - enough / total, sorted(curve.items())
