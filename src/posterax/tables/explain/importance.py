"""Which columns of a table matter to its model, and how sure that is."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats
from sklearn.utils import check_consistent_length

from ..._util.admit import admit_float64
from ..._util.checks import fraction, one_of, whole_number
from ..._util.text import in_columns
from .effect import effects
from .table import Change, Progress, Table, as_table, sample_rows

TITLES = {"nll": "NLL", "rmse": "RMSE", "error": "error", "effect": "effect"}


class Estimates(NamedTuple):
    """A number for each column, with its interval."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class Importance:
    """Columns with their importance, in the order of the table; printed, the largest come first.

    ``scores`` has ``"nll"`` and ``"rmse"`` (of a classifier ``"error"``), or ``"effect"``;
    ``base`` the score of the rows as they are.
    """

    by: str
    columns: list[str]
    scores: dict[str, Estimates]
    base: dict[str, float]
    level: float
    rows: int
    repeats: int

    @property
    def main(self) -> str:
        """The score that orders the columns: ``"nll"`` or ``"effect"``."""
        return next(iter(self.scores))

    @property
    def order(self) -> np.ndarray:
        """Numbers of the columns, the most important first."""
        return np.argsort(-self.scores[self.main].value, kind="stable")

    def to_pandas(self) -> pd.DataFrame:
        """A row for each column, the most important first."""
        parts = {
            name + end: values
            for name, estimates in self.scores.items()
            for end, values in zip(("", "_low", "_high"), estimates, strict=True)
        }
        frame = pd.DataFrame(parts, index=pd.Index(self.columns, name="column"))
        return frame.iloc[self.order]

    def decimals(self) -> dict[str, int]:
        """How many decimals show each score to three digits."""
        return {name: _decimals(values.value) for name, values in self.scores.items()}

    def lines(self) -> list[list[str]]:
        """Head and cells of a table of text."""
        digits = self.decimals()
        heads = ["column"]
        for name in self.scores:
            rise = TITLES[name] if self.by == "effect" else f"rise of {TITLES[name]}"
            heads += [rise, f"{100 * self.level:g} % interval"]
        rows = [heads]
        for i in self.order:
            cells = [self.columns[i]]
            for name, values in self.scores.items():
                value, low, high = (f"{v[i]:.{digits[name]}f}" for v in values)
                cells += [value, f"{low} to {high}"]
            rows.append(cells)
        return rows

    def __repr__(self) -> str:
        how = f"permutation, {self.repeats} repeats"
        if self.by == "effect":
            how = "the deviation of their partial dependence"
        lines = [f"importance by {how}, {self.rows} rows", *in_columns(self.lines())]
        if self.base:
            as_is = ", ".join(f"{TITLES[k]} {v:.4g}" for k, v in self.base.items())
            lines.append(f"rows as they are: {as_is}")
        return "\n".join(lines)


def importance(
    estimator: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    by: Literal["permutation", "effect"] = "permutation",
    repeats: int = 10,
    level: float = 0.9,
    rows: int | None = 1000,
    sample_weight: ArrayLike | None = None,
    key: int = 0,
    progress: Progress | None = None,
) -> Importance:
    r"""How much each column of the table matters to the predictions.

    ``by="permutation"``: how much worse predictions become when a column's cells are exchanged
    among the rows, which leaves the column as it is and breaks its tie to everything else:

        Δ = mean of L(yᵢ, xᵢ with the cell of row j) − mean of L(yᵢ, xᵢ)

    with L the NLL in nats, and the squared error (its root, the RMSE, is compared) or whether the
    class is wrong. The interval is normal, by the variance over rows, both as receivers and as
    givers of cells, as of a U-statistic; the chance of a few repeats is part of it. It is about
    other rows, not about other fits. Give rows that the model has not seen: on its own training
    rows a column that was only learned by heart looks important. Columns that say the same share
    their importance, and each alone may look needless.

    ``by="effect"``: the deviation over rows of the partial dependence on a column, which needs no
    targets and is in the units of y (of classes: of probabilities, √(½ Σ_k Var p_k)). The value
    is its mean over posterior samples and the interval their quantiles: the uncertainty about the
    function. It is above 0 even for a column that does nothing, and blind to a column that works
    only through others.

    Args:
        estimator: a fitted ``BayesianRegressor`` or ``BayesianClassifier``.
        X: rows, best such that were not used for the fit.
        y: their targets; needed ``by="permutation"``.
        by: ``"permutation"`` or ``"effect"``.
        repeats: how often each column is permuted.
        level: mass of the intervals.
        rows: of more rows, use so many, drawn by ``key``; ``None`` for all of them.
        sample_weight: how often each row counts.
        key: an int; the same key gives the same numbers.
        progress: called with the number of blocks done and of all blocks.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> from posterax.tables import explain
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> y = 2 * X[:, 0] + X[:, 1]
        >>> model = px.BayesianRegressor(steps=400, members=1, random_state=0)
        >>> found = explain.importance(model.fit(X[:100], y[:100]), X[100:], y[100:])
        >>> [found.columns[i] for i in found.order]
        ['x0', 'x1', 'x2']

    References:
        Breiman, Random Forests, Machine Learning 2001.
        Fisher, Rudin & Dominici, All Models are Wrong, but Many are Useful, JMLR 2019.
        Greenwell, Boehmke & McCarthy, A Simple and Effective Model-Based Variable Importance
        Measure, arXiv 1805.04755, 2018.

    Departs from Fisher et al. in the differences of losses, not their ratio.
    """
    one_of("by", by, ("permutation", "effect"))
    level, repeats = fraction("level", level), whole_number("repeats", repeats)
    rows = rows if rows is None else whole_number("rows", rows, least=2)
    table = as_table(estimator, X)
    weight = _weights(sample_weight, len(table))
    if by == "permutation":
        if y is None:
            raise ValueError("by='permutation' needs the targets y; without them use by='effect'")
        targets = _targets(estimator, y, len(table))
        there = np.flatnonzero(weight > 0)
        chosen = there[sample_rows(len(there), rows, key)]
        if len(chosen) < 2:
            raise ValueError(
                f"by='permutation' needs 2 rows or more with a weight above 0, got {len(chosen)}"
            )
        part = _Permuted(table.take(chosen), targets[chosen], weight[chosen], repeats, key)
        scores, base = part.scores(level, progress)
    else:
        scores, base = (
            {"effect": Estimates(*effects(table, weight, level, rows, key, progress))},
            {},
        )
    count = len(chosen) if by == "permutation" else len(table)
    return Importance(by, table.names, scores, base, level, count, repeats)


# -- by permutation


class _Permuted:
    """Losses of rows as they are, and with the cells of other rows."""

    def __init__(
        self, table: Table, y: np.ndarray, weight: np.ndarray, repeats: int, key: int
    ) -> None:
        self.table, self.y, self.repeats = table, y, repeats
        self.share = weight / weight.sum()
        self.classes = hasattr(table.estimator, "classes_")
        random = np.random.default_rng(key)
        self.used = [j for j in range(len(table.names)) if table.used(j)]
        # the same givers for all columns: their importances can be compared
        self.givers = np.stack([_givers(self.share, random) for _ in range(repeats)])

    def scores(
        self, level: float, progress: Progress | None
    ) -> tuple[dict[str, Estimates], dict[str, float]]:
        changes: list[Change | None] = [None]
        for j in self.used:
            cells = self.table.frame.iloc[:, j]
            changes += [Change(j, cells, givers) for givers in self.givers]
        blocks = self.table.each(changes, self._losses, progress)
        every = np.stack(
            [one for block in blocks for one in block]
        )  # (1 + columns · repeats, n, 2)
        base, z = every[0], float(stats.norm.ppf((1 + level) / 2))
        found = np.zeros((2, 2, len(self.table.names)))  # score, (value, error), column
        for place, j in enumerate(self.used):
            own = every[1 + place * self.repeats : 1 + (place + 1) * self.repeats]
            found[0, :, j] = self._rise(base[:, 0], own[:, :, 0], root=False)
            found[1, :, j] = self._rise(base[:, 1], own[:, :, 1], root=not self.classes)
        names = ("nll", "error" if self.classes else "rmse")
        plain = self.share @ base
        ends = plain if self.classes else np.array([plain[0], np.sqrt(plain[1])])
        scores = {
            name: Estimates(value, value - z * error, value + z * error)
            for name, (value, error) in zip(names, found, strict=True)
        }
        return scores, dict(zip(names, ends.tolist(), strict=True))

    def _losses(self, X: Any, copies: int) -> np.ndarray:
        """NLL, and squared error or whether the class is wrong: (copies, rows, 2)."""
        y = self.y[np.arange(len(X)) % len(self.y)]
        predictive = self.table.estimator.predictive(X)
        nll = -np.asarray(predictive.log_prob(y), np.float64)
        mean = np.asarray(predictive.mean, np.float64)
        if self.classes:
            other = (mean.argmax(-1) != y).astype(np.float64)
        else:
            other = np.square(mean.reshape(len(y), -1) - y.reshape(len(y), -1)).mean(-1)
        return np.stack([nll, other], -1)[: copies * len(self.y)].reshape(copies, -1, 2)

    def _rise(self, base: np.ndarray, changed: np.ndarray, *, root: bool) -> tuple[float, float]:
        """The rise of a mean loss, or of its root, and its standard error over rows."""
        w, rise = self.share, changed - base
        value = float((rise @ w).mean())
        # what a row adds as a receiver of cells, and as a giver of them
        count = len(w)
        received = np.bincount(self.givers.ravel(), np.tile(w, self.repeats), count)
        given = np.bincount(self.givers.ravel(), (rise * w).ravel(), count)
        giver = np.where(received > 0, given / np.where(received > 0, received, 1), value)
        if not root:
            pull = rise.mean(0) + giver - 2 * value
        else:
            before, after = float(w @ base), float((changed @ w).mean())
            value_of_mean = value
            value = np.sqrt(after) - np.sqrt(before)
            pull = (changed.mean(0) - after + giver - value_of_mean) / (2 * np.sqrt(after or 1))
            pull -= (base - before) / (2 * np.sqrt(before or 1))
        # rows are the independent units: one given twice is no second observation
        return value, float(np.sqrt(np.sum(np.square(w * pull)) * count / (count - 1)))


def _givers(share: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A permutation of the rows; with weights, rows as often as these ask for."""
    total = np.cumsum(share)
    marks = (np.arange(len(share)) + 0.5) / len(share) * total[-1]
    return random.permutation(np.minimum(np.searchsorted(total, marks), len(share) - 1))


def _targets(estimator: Any, y: ArrayLike, rows: int) -> np.ndarray:
    """Targets as numbers, or labels as 0 … K−1."""
    given = np.asarray(y)
    if len(np.atleast_1d(given)) != rows:
        raise ValueError(f"X and y must have the same number of rows, got {rows} and {len(given)}")
    if not hasattr(estimator, "classes_"):
        values = admit_float64(given, "y")
        if not np.all(np.isfinite(values)):
            raise ValueError("y holds NaN or infinite values: drop those rows")
        return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    known = {label: i for i, label in enumerate(estimator.classes_.tolist())}
    labels = given.reshape(-1).tolist()
    unseen = [label for label in labels if label not in known]
    if unseen:
        raise ValueError(
            f"y holds the label {unseen[0]!r}, which is not among the classes "
            f"{list(known)[:20]}: drop those rows"
        )
    return np.array([known[label] for label in labels], np.int64)


def _weights(sample_weight: ArrayLike | None, rows: int) -> np.ndarray:
    if sample_weight is None:
        return np.ones(rows)
    weight = admit_float64(sample_weight, "sample_weight").reshape(-1)
    check_consistent_length(weight, np.zeros(rows))
    if not (np.all(np.isfinite(weight)) and np.all(weight >= 0) and np.any(weight > 0)):
        raise ValueError("sample_weight must be finite, 0 or more, and not all 0")
    return weight


def _decimals(values: np.ndarray) -> int:
    largest = float(np.max(np.abs(values), initial=0))
    return 4 if largest == 0 else int(np.clip(2 - np.floor(np.log10(largest)), 0, 8))
