"""What more rows would bring: by the model's own account, and by fits to fewer rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats
from sklearn.base import clone

from ..._util.checks import fraction
from ..._util.text import in_columns
from .importance import _targets
from .table import Table


@dataclass(frozen=True, eq=False, repr=False)
class Uncertainty:
    """The mean uncertainty of some rows and its epistemic part.

    Variances in units of y squared, or entropies in nats for classes. ``share`` is
    epistemic / total, with an interval over rows.
    """

    total: float
    epistemic: float
    aleatoric: float
    share: float
    low: float
    high: float
    unit: str
    rows: int
    level: float

    def __repr__(self) -> str:
        if self.unit == "nats":
            now, left = f"{self.total:.4g} nats", f"{self.aleatoric:.4g} nats"
            what = "entropy"
        else:
            now, left = f"{np.sqrt(self.total):.4g}", f"{np.sqrt(self.aleatoric):.4g}"
            what = "deviation"
        return (
            f"{100 * self.share:.1f} % of the uncertainty of {self.rows} rows is epistemic "
            f"({100 * self.level:g} % interval over rows {100 * self.low:.1f} to "
            f"{100 * self.high:.1f} %): by the model's own account, with rows without end the "
            f"typical {what} would fall from {now} to {left}"
        )


def uncertainty(estimator: Any, X: ArrayLike, *, level: float = 0.9) -> Uncertainty:
    r"""What more rows could remove of the uncertainty, by the model's own account.

    Regression: Var[y | x] = Var_w E[y | x, w] + E_w Var[y | x, w], epistemic + aleatoric, averaged
    over rows. Classes: H[y | x] = I[y; w | x] + E_w H[y | x, w], in nats. The epistemic part is
    what rows without end, of the kind that the model was fitted to, would remove if the model were
    right. It costs one prediction, and says nothing of a wrong model: ``learning_curve`` measures.

    Args:
        estimator: a fitted ``BayesianRegressor`` or ``BayesianClassifier``.
        X: the rows to predict.
        level: mass of the interval of the share, which is about other rows.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> from posterax.tables import explain
        >>> X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
        >>> model = px.BayesianRegressor(steps=50, members=2, random_state=0).fit(X, X[:, 0])
        >>> found = explain.uncertainty(model, X)
        >>> 0 < found.share < 1, round(found.epistemic + found.aleatoric - found.total, 6)
        (True, 0.0)

    References:
        Depeweg, Hernández-Lobato, Doshi-Velez & Udluft, Decomposition of Uncertainty in Bayesian
        Deep Learning, ICML 2018.
    """
    level = fraction("level", level)
    table = Table(estimator, X)
    predictive = estimator.predictive(table.given(table.frame))
    parts = predictive.epistemic, predictive.aleatoric
    epistemic, aleatoric = (np.asarray(a, np.float64).reshape(len(table), -1) for a in parts)
    epistemic, aleatoric = epistemic.mean(1), aleatoric.mean(1)
    total, n = epistemic + aleatoric, len(table)
    share = float(epistemic.sum() / total.sum()) if total.sum() > 0 else 0.0
    pull = (epistemic - share * total) / (total.mean() or 1)  # of a ratio of means
    error = float(stats.norm.ppf((1 + level) / 2) * pull.std(ddof=min(1, n - 1)) / np.sqrt(n))
    return Uncertainty(
        float(total.mean()), float(epistemic.mean()), float(aleatoric.mean()), share,
        max(share - error, 0.0), min(share + error, 1.0),
        "nats" if hasattr(estimator, "classes_") else "variance", n, level,
    )  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class LearningCurve:
    """Scores on the same held-out rows after fits to more and more rows.

    ``scores`` has ``"nll"`` and ``"rmse"`` (``"error"``): value, low and high for each of
    ``rows``. ``gains`` are the falls of the NLL from each fit to the next, row by row, with their
    intervals.
    """

    rows: list[int]
    scores: dict[str, np.ndarray]  # (fits, 3)
    gains: np.ndarray  # (fits − 1, 3)
    held_out: int
    level: float

    def to_pandas(self) -> pd.DataFrame:
        """A row for each fit."""
        parts = {
            name + end: values[:, i]
            for name, values in self.scores.items()
            for i, end in enumerate(("", "_low", "_high"))
        }
        return pd.DataFrame(parts, index=pd.Index(self.rows, name="rows"))

    def __repr__(self) -> str:
        interval = f"{100 * self.level:g} % interval"
        second = list(self.scores)[1]
        heads = ["rows", "NLL", interval, second.upper() if second == "rmse" else second, interval]
        lines = [heads]
        for i, rows in enumerate(self.rows):
            cells = [f"{rows:,}"]
            for value, low, high in (values[i] for values in self.scores.values()):
                cells += [f"{value:.4g}", f"{low:.4g} to {high:.4g}"]
            lines.append(cells)
        text = in_columns(lines)
        if len(self.gains):
            gain, low, high = self.gains[-1]
            clear = "" if low > 0 else "; it may be chance"
            before, after = self.rows[-2:]
            text.append(
                f"from {before:,} to {after:,} rows the NLL fell by {gain:.3g} nats a row "
                f"({low:.3g} to {high:.3g}){clear}"
            )
        return "\n".join([*text, f"scores of {self.held_out:,} held-out rows"])


def learning_curve(
    estimator: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    held_out: tuple[ArrayLike, ArrayLike] | None = None,
    shares: Sequence[float] = (0.25, 0.5, 1.0),
    level: float = 0.9,
    key: int = 0,
) -> LearningCurve:
    """What more rows brought so far: fits to parts of the rows, scored on the same others.

    The estimator is cloned and fitted once for each share, to nested random parts of the rows, so
    this takes as long as these fits; it is not changed itself. A curve that still falls between
    half of the rows and all of them is the best sign that more rows would help. Unlike
    ``uncertainty`` it does not rely on the model's own account. Intervals are normal over the
    held-out rows; another draw of the parts, or another seed, adds to them.

    Args:
        estimator: a ``BayesianRegressor`` or ``BayesianClassifier``, fitted or not.
        X: rows to learn from.
        y: their targets.
        held_out: ``(X, y)`` to score on (default: a quarter of the rows, which is not learned
            from).
        shares: of the rows, each above 0 and at most 1.
        level: mass of the intervals.
        key: an int.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> from posterax.tables import explain
        >>> X = np.random.default_rng(0).uniform(-1, 1, (120, 2))
        >>> model = px.BayesianRegressor(steps=100, members=1, random_state=0)
        >>> curve = explain.learning_curve(model, X, X[:, 0], shares=(0.5, 1.0))
        >>> curve.rows, curve.gains.shape
        ([45, 90], (1, 3))

    References:
        Cortes, Jackel, Solla, Vapnik & Denker, Learning Curves: Asymptotic Values and Rate of
        Convergence, NIPS 1993.
    """
    level = fraction("level", level)
    steps = [float(share) for share in shares]
    if not steps or not all(0 < share <= 1 for share in steps) or steps != sorted(set(steps)):
        raise ValueError(f"shares must rise and lie above 0 and at most at 1, got {shares!r}")
    y, n = np.asarray(y), len(np.asarray(y))
    order = np.random.default_rng(key).permutation(n)
    if held_out is None:
        if n < 8:
            raise ValueError(f"a quarter of {n} rows is too few to score on: give held_out=(X, y)")
        apart, order = order[: n // 4], order[n // 4 :]
        held_out = (_take(X, apart), y[apart])
    counts = [max(1, round(share * len(order))) for share in steps]
    z = float(stats.norm.ppf((1 + level) / 2))
    losses = []
    for count in counts:
        rows = order[:count]
        fitted = clone(estimator).fit(_take(X, rows), y[rows])
        if hasattr(fitted, "classes_") and (lost := set(y.tolist()) - set(fitted.classes_)):
            raise ValueError(
                f"{count} rows hold no row of the class {sorted(lost, key=str)[0]!r}: begin with a "
                f"larger share than {steps[counts.index(count)]:g}"
            )
        losses.append(_losses(fitted, *held_out))
    classes = hasattr(fitted, "classes_")
    every = np.stack(losses)  # (fits, rows, 2)
    nll = np.stack([_interval(a, z) for a in every[:, :, 0]])
    other = np.stack([_interval(a, z, root=not classes) for a in every[:, :, 1]])
    gains = [_interval(a - b, z) for a, b in zip(every[:-1, :, 0], every[1:, :, 0], strict=True)]
    return LearningCurve(
        counts, {"nll": nll, "error" if classes else "rmse": other},
        np.reshape(gains, (-1, 3)), every.shape[1], level,
    )  # fmt: skip


def _take(values: Any, rows: np.ndarray) -> Any:
    return values.iloc[rows] if hasattr(values, "iloc") else np.asarray(values)[rows]


def _losses(estimator: Any, X: ArrayLike, y: ArrayLike) -> np.ndarray:
    """NLL, and squared error or whether the class is wrong, of each row."""
    table = Table(estimator, X)
    true = _targets(estimator, y, len(table))
    predictive = estimator.predictive(table.given(table.frame))
    nll = -np.asarray(predictive.log_prob(true), np.float64)
    mean = np.asarray(predictive.mean, np.float64)
    if hasattr(estimator, "classes_"):
        return np.stack([nll, mean.argmax(-1) != true], -1)
    square = np.square(mean.reshape(len(table), -1) - true.reshape(len(table), -1)).mean(-1)
    return np.stack([nll, square], -1)


def _interval(losses: np.ndarray, z: float, *, root: bool = False) -> np.ndarray:
    """Mean, or its root, and the ends of its normal interval over rows."""
    mean, error = losses.mean(), losses.std(ddof=min(1, len(losses) - 1)) / np.sqrt(len(losses))
    if root:
        mean = np.sqrt(mean)
        error = error / (2 * mean) if mean > 0 else 0.0
    return np.array([mean, mean - z * error, mean + z * error])
