"""All weights of a posterior in the order in which they would go: by signal-to-noise, or size."""

import numpy as np

from .._util.checks import one_of
from ..networks.parts import Where
from ..networks.sparse import Masks
from ..posteriors import Posterior
from ..posteriors.scaled import named_moments
from .families import check_posterior, original_sizes

SIGNAL_TO_NOISE, MAGNITUDE = "signal_to_noise", "magnitude"


def signal_to_noise(posterior: Posterior, where: Where | None = None) -> dict[str, np.ndarray]:
    r"""The signal-to-noise ratio 10 log₁₀(|μ| / σ) of every weight, in decibels, by array.

    −∞ for a mean of 0. ``px.plot.signal_to_noise`` draws how it is spread.

    Args:
        posterior: of a method that gives weights a deviation.
        where: which arrays, as in ``px.Model`` (default: all of the network's that have a prior,
            biases among them).

    Example:
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> model = curve_model(hidden_sizes=(4,))
        >>> posterior = px.fit(model, curve_data(16), px.BayesByBackprop(), steps=5, key=0)
        >>> {name: ratio.shape for name, ratio in px.pruning.signal_to_noise(posterior).items()}
        {'layers.0.weight': (4, 1), 'layers.0.bias': (4,), 'layers.1.weight': (1, 4), ...}

    Reference:
        Blundell, Cornebise, Kavukcuoglu and Wierstra, *Weight uncertainty in neural networks*,
        ICML 2015, section 5.1; Graves, *Practical variational inference for neural networks*,
        NIPS 2011.
    """
    return scores(posterior, SIGNAL_TO_NOISE, where)


def scores(posterior: Posterior, by: str, where: Where | None) -> dict[str, np.ndarray]:
    """What weights are ordered by: their signal-to-noise in decibels, or their magnitude |μ|."""
    check_posterior(posterior)
    one_of("by", by, (SIGNAL_TO_NOISE, MAGNITUDE))
    means, deviations = (
        {n.removeprefix("network."): a for n, a in part.items() if n.startswith("network.")}
        for part in named_moments(posterior, where)
    )
    if not means:
        raise ValueError(f"where={where!r} leaves no weight that has a prior")
    if by == MAGNITUDE:
        return {name: np.abs(mu) for name, mu in means.items()}
    if not any(np.any(sigma) for sigma in deviations.values()):
        raise ValueError(
            f"pruning: {type(posterior).__name__} has no deviations, and so no signal-to-noise "
            "ratio: fit with px.BayesByBackprop or px.IVON, or prune by='magnitude'"
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = {name: np.abs(mu) / deviations[name] for name, mu in means.items()}
        # 0/0: a constant 0 says nothing
        return {name: 10 * np.log10(np.nan_to_num(r, nan=0.0)) for name, r in ratio.items()}


class Ranking:
    """Weights by score, the lowest first, in one order or one for each layer.

    Weights with the same score go in the order of the network's arrays, so that a fraction is
    exact and the same every time.

    Args:
        posterior: whose weights.
        scores: of the weights that may go, by array.
        scope: ``"global"``, or ``"layer"``: arrays of one module (``layers.0.weight`` and
            ``layers.0.bias``) are a layer.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> from posterax.pruning.ranking import Ranking
        >>> network = px.networks.MLP(1, 1, (2,), key=0)
        >>> model = px.Model(network, likelihood=px.likelihoods.Gaussian(0.1))
        >>> prior = px.prior_posterior(model, np.ones((1, 1)))
        >>> scores = {"layers.0.weight": np.array([[2.0], [1.0]]), "layers.0.bias": np.zeros(2)}
        >>> Ranking(prior, scores, "global").masks(0.75)
        {'layers.0.weight': array([[ True], [False]]), 'layers.0.bias': array([False, False])}
    """

    def __init__(self, posterior: Posterior, scores: dict[str, np.ndarray], scope: str):
        one_of("scope", scope, ("global", "layer"))
        before = original_sizes(posterior)
        self.scores = scores
        self.groups: dict[str, list[str]] = {}
        for name in scores:
            layer = name.rpartition(".")[0] or name
            self.groups.setdefault("" if scope == "global" else layer, []).append(name)
        self.sizes = {g: sum(before[n] for n in names) for g, names in self.groups.items()}
        self.order = {
            # stable: equal scores in the order of the arrays
            g: np.argsort(np.concatenate([scores[n].reshape(-1) for n in names]), kind="stable")
            for g, names in self.groups.items()
        }

    @property
    def total(self) -> int:
        """Weights of the chosen arrays, those that are gone included."""
        return sum(self.sizes.values())

    @property
    def gone(self) -> int:
        """Weights that an earlier pruning removed."""
        return self.total - sum(map(len, self.order.values()))

    def masks(self, fraction: float) -> Masks:
        """What stays when this share of the original arrays is removed, in each group.

        A group that lost more already loses nothing.
        """
        masks: Masks = {}
        for group, names in self.groups.items():
            size, left = self.sizes[group], len(self.order[group])
            count = max(round(fraction * size) - (size - left), 0)
            stays = np.ones(left, bool)
            stays[self.order[group][:count]] = False
            ends = np.cumsum([self.scores[n].size for n in names])
            for name, part in zip(names, np.split(stays, ends[:-1]), strict=True):
                masks[name] = part.reshape(self.scores[name].shape)
        return _without_full(masks)

    def cut(self, fraction: float) -> float | None:
        """The lowest score that stays; ``None`` where so much is gone, or all would go."""
        (order,) = self.order.values()
        count = round(fraction * self.total) - self.gone
        if not 0 <= count < len(order):
            return None
        return float(np.concatenate([s.reshape(-1) for s in self.scores.values()])[order[count]])

    def above(self, threshold: float) -> Masks:
        """What stays when all scores below a threshold are removed."""
        return _without_full({name: score >= threshold for name, score in self.scores.items()})


def _without_full(masks: Masks) -> Masks:
    """Only the arrays that lose something."""
    return {name: mask for name, mask in masks.items() if not mask.all()}
