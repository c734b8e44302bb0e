"""Classification on a table."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from .. import likelihoods
from ..likelihoods import Likelihood
from ..predictive import Predictive
from .averaging import temperature
from .base import BayesianEstimator
from .large import LargeTable
from .standardise import MEASURABLE_ROWS, Given, Rows


@dataclass(eq=False, repr=False)
class BayesianClassifier(ClassifierMixin, BayesianEstimator):
    r"""A Bayesian neural network for tables: class probabilities that know what they don't know.

    Inputs are standardised inside; labels may be numbers or text. By default several unlike models
    are cross-fitted and weighted, as in [`BayesianRegressor`][posterax.BayesianRegressor]; the
    defaults were chosen on validation splits (docs/tables.md).

    Args:
        prior: a prior of ``px.priors`` over the weights; the default learns its widths for
            ``method="bayes_by_backprop"``, and is ``Gaussian(1.0)`` for others.
        temperature: weight of the KL in Bayes by Backprop, as in
            [`BayesianRegressor`][posterax.BayesianRegressor]; so are all arguments that are not
            listed here.
        class_weight: ``None``, ``"balanced"``, or a weight for each class, by label.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> import posterax as px
        >>> X, y = load_iris(return_X_y=True)
        >>> classifier = px.BayesianClassifier(steps=300, random_state=0).fit(X, y)
        >>> classifier.predict_proba(X[:2]).shape
        (2, 3)
        >>> bool(classifier.score(X, y) > 0.9)
        True
    """

    _: KW_ONLY
    class_weight: str | dict[Any, float] | None = None
    temperature: float | tuple[float, float] = (0.02, 0.5)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Update with new rows: the posterior so far is their prior.

        Args:
            X: new rows.
            y: their labels.
            classes: all labels there will ever be; needed at the first call.
            sample_weight: how often each row counts.
        """
        return self._attempt(self._update, Given(X, y, sample_weight, classes))

    def predict(self, X: ArrayLike) -> np.ndarray:
        """The most probable class."""
        probabilities = self.predict_proba(X)  # which refuses one that is not fitted
        return self.classes_[np.argmax(probabilities, axis=1)]

    def predict_proba(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Class probabilities, averaged over the posterior, in the order of ``classes_``.

        With ``return_std`` also their deviations over the posterior.
        """
        check_is_fitted(self, "posterior_")
        if not self._learns():
            ones = np.ones((len(self._check_inputs(X, reset=False)), 1))
            return (ones, 0 * ones) if return_std else ones
        predictive = self.predictive(X)
        mean = predictive.mean.astype(np.float64)
        mean /= mean.sum(axis=1, keepdims=True)  # float32 sums to 1 only nearly
        return (mean, predictive.std) if return_std else mean

    def predict_log_proba(self, X: ArrayLike) -> np.ndarray:
        """Logarithms of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predictive(self, X: ArrayLike, *, samples: int | None = None) -> Predictive:
        check_is_fitted(self, "posterior_")
        if not self._learns():
            raise ValueError(
                f"y had one class at fit, {self.classes_.tolist()[0]!r}: there is nothing to be "
                "uncertain about; fit with rows of two classes or more"
            )
        return super().predictive(X, samples=samples)

    predictive.__doc__ = BayesianEstimator.predictive.__doc__

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draws of labels, (rows, n_samples); arguments are those of a regressor."""
        drawn = super().sample_y(X, n_samples, random_state)
        return self.classes_[drawn if self._learns() else 0 * drawn]

    def _blend(self, rows: Rows, table: LargeTable | None = None) -> None:
        super()._blend(rows, table)
        blended, self._blended = self._blended, None  # an estimator does not keep its rows
        assert blended is not None
        if len(rows.x) >= MEASURABLE_ROWS:
            self.posterior_ = blended.posterior.tempered(temperature(blended, self._fit_seed))

    # -- targets

    def _check_targets(self, given: Given, *, first: bool) -> np.ndarray:
        y, classes = column_or_1d(given.y, warn=True), given.classes
        if y.dtype.kind == "f" and not np.all(np.isfinite(y)):
            raise ValueError("y must hold labels, but it contains NaN or infinity: drop those rows")
        if y.dtype == object:
            _check_objects(y)
        check_classification_targets(y)
        if first:
            self.classes_ = np.unique(y if classes is None else np.asarray(classes))
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(
                f"classes must be the same at every partial_fit, {self.classes_.tolist()}, got "
                f"{np.unique(classes).tolist()}"
            )
        labels = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        unknown = self.classes_[labels] != y
        if np.any(unknown):
            raise ValueError(
                f"y holds the label {y[unknown].tolist()[0]!r}, which is not among the classes "
                f"{self.classes_.tolist()}: name all of them in the first partial_fit(classes=…)"
            )
        return labels

    def _extra_weight(self, y: np.ndarray, of: np.ndarray) -> np.ndarray | float:
        if self.class_weight is None:
            return 1.0
        by_class, present = np.ones(len(self.classes_)), np.unique(of)
        known = self.classes_.tolist()
        if isinstance(self.class_weight, dict):
            present = np.arange(len(known))
            for label in self.class_weight:
                if label not in known:
                    raise ValueError(
                        f"class_weight names {label!r}, which is not among the classes {known}"
                    )
        by_class[present] = compute_class_weight(
            self.class_weight, classes=self.classes_[present], y=self.classes_[of]
        )
        return by_class[y]

    def _inner_targets(self, y: np.ndarray) -> np.ndarray:
        return y.astype(np.int32)

    def _likelihood(self) -> tuple[Likelihood, int]:
        return likelihoods.Categorical(), max(2, len(self.classes_))

    def _learns(self) -> bool:
        return len(self.classes_) > 1


def _check_objects(y: np.ndarray) -> None:
    """Labels as Python objects must be of one type, and one that a file can hold."""
    missing = sum(label is None or (isinstance(label, float) and np.isnan(label)) for label in y)
    if missing:
        raise ValueError(f"y holds {missing} missing labels (None or NaN): drop those rows")
    kinds = sorted({type(label).__name__ for label in y})
    if len(kinds) > 1 or not isinstance(y[0], str | bool | int | float | np.generic):
        raise ValueError(
            f"y holds labels of type {' and '.join(kinds)}: make them all text, for instance with "
            "y.astype(str)"
        )
