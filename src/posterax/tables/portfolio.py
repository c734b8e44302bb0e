"""The models that ``method="auto"`` tries: unlike one another, so that each errs in its own way.

Networks smooth, trees cut; chains know what variational fits cut off, and these go where there are
too many rows for chains. docs/tables.md says on what rows they were chosen.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import networks, priors
from .._util.checks import one_of
from ..infer import MCLMC, BayesByBackprop, DeepEnsemble, Method
from .trees import Growth

FOLDS = 5
PER_FOLD = 2  # networks of each model that leave out the same fold
MEMBERS = FOLDS * PER_FOLD
QUALITIES = ("fast", "good", "best")
SAMPLED_ROWS = 2500  # up to so many rows a pass over all of them at every step is cheap
MOST_SAMPLED_ROWS = 20_000  # with quality="best"
MANY_ROWS = 20_000
MOST_CLASSES = 100  # of which each gets trees of its own
MOST_TREES = 1500  # of a fold, for all classes together
STEPS = (2000, 8000)  # of a fit, for 50 rows and fewer, for 200 and more
MOST_STEPS = 20_000
EPOCHS = 40  # at least, up to the most steps
FULL_BATCH, BATCH = 300, 256
RATE = 1e-2
DRAWS = 40  # of each chain
MOST_WAVES = 64  # columns of numbers that become waves: each is eight inputs


class Part(NamedTuple):
    """One model of a portfolio, its networks cross-fitted.

    ``based`` is a network that corrects boosted trees, ``waves`` one that sees numbers as waves; a
    ``plain`` one goes on in straight lines beyond the data.
    ``steps`` are those of the method, or the draws of each chain; ``work`` is about the share of
    the time it takes.
    """

    name: str
    hidden: tuple[int, ...]
    method: Method
    prior: priors.Prior
    steps: int
    work: float
    based: bool = False
    activation: str = "relu"
    waves: bool = False
    plain: bool = False

    def network(
        self, inputs: int, outputs: int, own: int, key: int, numbers: tuple[int, ...] = ()
    ) -> Any:
        """The network of every member, before it has learned.

        ``numbers`` are the columns that may become waves, as ``numbers_in`` finds them.
        """
        how: dict[str, Any] = {"activation": self.activation, "key": key}
        if self.based:
            return networks.Tabular(inputs, outputs, self.hidden, offsets=own, **how)
        if self.waves and 0 < len(numbers) <= MOST_WAVES:
            return networks.Periodic(inputs, outputs, self.hidden, numbers=numbers, **how)
        return networks.MLP(inputs, outputs, self.hidden, **how)


def numbers_in(x: np.ndarray) -> tuple[int, ...]:
    """Columns with more than two values: others gain nothing from waves.

    Example:
        >>> import numpy as np
        >>> from posterax.tables.portfolio import numbers_in
        >>> numbers_in(np.array([[1.0, 0.0], [2.0, 1.0], [3.0, 0.0]]))
        (0,)
    """
    between = (x != x.min(axis=0)) & (x != x.max(axis=0))
    return tuple(np.flatnonzero(between.any(axis=0)).tolist())


class Portfolio(NamedTuple):
    """What is tried, and how."""

    parts: tuple[Part, ...]
    growths: tuple[Growth, ...]  # of trees
    folds: int
    batch_size: int | None


def portfolio(
    n: int, *, classes: int, trees: bool = True, quality: str = "good", streamed: bool = False
) -> Portfolio:
    """The models for a table of so many rows, the most valuable first.

    Args:
        n: rows.
        classes: how many there are among the targets; 0 in regression.
        trees: whether there may be parts that correct boosted trees.
        quality: ``"fast"``, ``"good"`` or ``"best"``.
        streamed: whether only models that learn from a part of the rows at a time can be fitted.

    Example:
        >>> from posterax.tables.portfolio import portfolio
        >>> [part.name for part in portfolio(100_000, classes=0).parts]
        ['trees, Bayes by Backprop', 'deep ensemble', 'Bayes by Backprop']
    """
    one_of("quality", quality, QUALITIES)
    few = n <= SAMPLED_ROWS
    size = n if n <= FULL_BATCH else BATCH
    steps = int(np.clip(40 * n, *STEPS))
    steps = max(steps, min(EPOCHS * -(-n // size), MOST_STEPS))
    made = _Maker(n, steps, classes > 0, quality)
    parts = made.quick() if quality == "fast" else made.of_few() if few else made.of_many()
    trees = trees and classes <= MOST_CLASSES
    parts = [part for part in parts if trees or not part.based]
    parts = [part for part in parts if not (streamed and part.method.needs.all_data)]
    return Portfolio(
        tuple(parts), _growths(n, classes, quality), FOLDS, None if n <= FULL_BATCH else BATCH
    )


def _growths(n: int, outputs: int, quality: str) -> tuple[Growth, ...]:
    if quality == "fast":
        return (Growth(max(200 // max(outputs - 1, 1), 40), 4, 0.1),)
    if outputs > 2:  # each round grows a tree for every class
        return (Growth(max(MOST_TREES // outputs, 60), 5 if n <= SAMPLED_ROWS else 7, 0.1),)
    if n <= SAMPLED_ROWS:  # the last for tables in which rows come again
        return Growth(300, 8, 0.1), Growth(500, 3, 0.1), Growth(300, 12, 0.05, 0.3, 0.9)
    if outputs:
        return Growth(400, 5, 0.07), Growth(200, 7, 0.1)
    return (Growth(300, 7 if n <= MANY_ROWS else 8, 0.1),)


class _Maker(NamedTuple):
    n: int
    steps: int
    classes: bool
    quality: str

    def quick(self) -> list[Part]:
        return [
            self.variational("trees, Bayes by Backprop", (20,), 0.25, 1.0, based=True),
            self.variational("Bayes by Backprop", (50,), 0.5, 2.0, cold=True),
        ]

    def of_few(self) -> list[Part]:
        return [
            self.variational("trees, Bayes by Backprop", (20,), 0.5, 1.0, based=True),
            self.sampled("MCLMC", (50,), 2.0),
            self.deep(4.0),
            self.ensemble("deep ensemble", (100, 100), 0.5, 2.0),
        ] + [self.variational("Bayes by Backprop", (50,), 1.0, 2.0)] * (self.quality == "best")

    def of_many(self) -> list[Part]:
        return [
            self.variational("trees, Bayes by Backprop", (50,), 0.5, 1.0, based=True),
            self.ensemble("deep ensemble", (100, 100), 1.0, 2.0),
            self.variational("Bayes by Backprop", (100, 100), 1.0, 4.0),
        ] + [self.deep(16.0)] * (self.quality == "best" and self.n <= MOST_SAMPLED_ROWS)

    def variational(
        self, name: str, hidden: tuple[int, ...], steps: float, work: float, *,
        based: bool = False, cold: bool = False,
    ) -> Part:  # fmt: skip
        """Mean-field Gaussians, a few of them on a ladder of temperatures."""
        inside = BayesByBackprop(
            learning_rate=RATE, initial_rho=-4.0, rho_rate=1.0, estimator="weight",
            schedule="cosine",
        )  # fmt: skip
        # where it stands alone it has to follow what little there is to see
        ends = (0.5, 0.1) if self.classes else (0.7, 0.1) if cold else (1.0, 0.3)
        ladder = tuple(np.geomspace(*ends, MEMBERS).tolist())
        prior = priors.Hierarchical(1.0, 1.0, relevance=not self.classes)
        method = DeepEnsemble(MEMBERS, inside, ladder, folds=FOLDS)
        steps = round(steps * self.steps)
        return Part(name, hidden, method, prior, steps, work, based, plain=not based)

    def ensemble(self, name: str, hidden: tuple[int, ...], steps: float, work: float) -> Part:
        """Maxima a posteriori of networks that see numbers as waves."""
        method = DeepEnsemble(MEMBERS, learning_rate=RATE, folds=FOLDS)
        return Part(
            name, hidden, method, self._fixed(), round(steps * self.steps), work, waves=True
        )

    def deep(self, work: float) -> Part:
        """Chains of a narrow network with three layers."""
        return self.sampled("MCLMC, deep", (16, 16, 16), work, activation="silu")

    def sampled(
        self, name: str, hidden: tuple[int, ...], work: float, *, activation: str = "relu"
    ) -> Part:
        """Microcanonical chains from trained networks."""
        more = 4 if self.quality == "best" and self.n <= SAMPLED_ROWS else 1
        method = MCLMC(chains=MEMBERS, warmup=3000 * more, ensemble_steps=1500 * more, folds=FOLDS)
        steps = DRAWS * more
        return Part(
            name, hidden, method, self._fixed(), steps, work, activation=activation,
            plain=activation == "relu",
        )  # fmt: skip

    def _fixed(self) -> priors.Prior:
        return priors.Gaussian(1.0, fan_in=not self.classes)
