"""All weights of a posterior in the order in which they would go."""

import numpy as np

from .._util.checks import one_of
from ..networks.sparse import Masks
from ..posteriors import Posterior
from .families import original_sizes


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
        self.left = {g: sum(scores[n].size for n in names) for g, names in self.groups.items()}
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
        return self.total - sum(self.left.values())

    def masks(self, fraction: float) -> Masks:
        """What stays when this share of the original arrays is removed, in each group.

        A group that lost more already loses nothing.
        """
        masks: Masks = {}
        for group, names in self.groups.items():
            size, left = self.sizes[group], self.left[group]
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
