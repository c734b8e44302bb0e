"""Classification on a table."""

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from .. import likelihoods
from .._util.checks import whole_number
from ..fitting.validation import Validation
from ..infer.base import Method
from ..likelihoods import Likelihood
from ..model import Model
from ..posteriors import Posterior, before_data
from ..predictive import Predictive
from .base import BayesianEstimator
from .standardise import Rows


class BayesianClassifier(ClassifierMixin, BayesianEstimator):
    r"""A Bayesian neural network for tables: class probabilities that know what they don't know.

    Inputs are standardised inside; labels may be numbers or text. By default six networks are
    fitted side by side by Bayes by Backprop; the defaults were chosen on validation splits
    (docs/tables.md).

    Args:
        method: as in [`BayesianRegressor`][posterax.BayesianRegressor].
        hidden_layer_sizes: widths of the hidden layers (default: by the number of rows).
        activation: ``"relu"``, ``"tanh"``, ``"silu"``, …
        prior: a prior of ``px.priors`` over the weights; the default learns its widths for
            ``method="bayes_by_backprop"``, and is ``Gaussian(1.0)`` for others.
        members: networks fitted side by side, for Bayes by Backprop and deep ensembles.
        temperature: weight of the KL in Bayes by Backprop, a number or a pair (coldest, warmest)
            between which the members are spread; 1 is the posterior, below 1 the data count
            1 / temperature times.
        class_weight: ``None``, ``"balanced"``, or a weight for each class, by label.
        epochs: passes over the data (default: by the number of rows).
        steps: steps of optimisation, or draws per chain, instead of epochs.
        batch_size: rows per step (default: all of a small table).
        learning_rate: step size of Adam (default 0.01).
        early_stopping: hold rows out, and stop when their likelihood no longer improves.
        validation_fraction: the share of rows to hold out.
        n_iter_no_change: looks at the held-out rows without improvement before stopping.
        samples: posterior draws per prediction.
        random_state: a seed; the same seed and data give the same bits.
        verbose: show a progress bar (default: where someone is watching).
        warm_start: start the next ``fit`` from the last one's posterior.
        columns: ``None`` for a table of numbers, or ``"auto"`` for one with text, gaps and dates,
            which are encoded; ``columns_.summary()`` says how.

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

    classes_: np.ndarray

    def __init__(
        self,
        method: Any = "bayes_by_backprop",
        *,
        hidden_layer_sizes: Any = None,
        activation: str = "relu",
        prior: Any = None,
        members: int = 6,
        temperature: Any = (0.02, 0.5),
        class_weight: Any = None,
        epochs: float | None = None,
        steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        samples: int = 100,
        random_state: Any = None,
        verbose: bool | None = None,
        warm_start: bool = False,
        columns: str | None = None,
    ):
        self.method = method
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.prior = prior
        self.members = members
        self.temperature = temperature
        self.class_weight = class_weight
        self.epochs = epochs
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.samples = samples
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start
        self.columns = columns

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "BayesianClassifier":
        """Learn the posterior of the network's weights.

        Args:
            X: (rows, columns), an array or a data frame.
            y: (rows,) labels, numbers or text.
            sample_weight: how often each row counts: 2 is the row given twice.
        """
        self._learn(X, y, sample_weight)
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> "BayesianClassifier":
        """Update with new rows: the posterior so far is their prior.

        Args:
            X: new rows.
            y: their labels.
            classes: all labels there will ever be; needed at the first call.
            sample_weight: how often each row counts.
        """
        self._update(X, y, sample_weight, classes)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[best]

    def predict_proba(self, X: Any, return_std: bool = False) -> Any:
        """Class probabilities, averaged over the posterior, in the order of ``classes_``.

        With ``return_std`` also their deviations over the posterior.
        """
        check_is_fitted(self, "posterior_")
        if len(self.classes_) == 1:
            ones = np.ones((len(self._check_inputs(X, reset=False)), 1))
            return (ones, 0 * ones) if return_std else ones
        predictive = self.predictive(X)
        mean = predictive.mean.astype(np.float64)
        mean /= mean.sum(axis=1, keepdims=True)  # float32 sums to 1 only nearly
        return (mean, predictive.std) if return_std else mean

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithms of ``predict_proba``."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predictive(self, X: Any, *, samples: int | None = None) -> Predictive:
        check_is_fitted(self, "posterior_")
        if len(self.classes_) == 1:
            only = self.classes_.tolist()[0]
            raise ValueError(
                f"y had one class at fit, {only!r}: there is nothing to be uncertain about; fit "
                "with rows of two classes or more"
            )
        return super().predictive(X, samples=samples)

    predictive.__doc__ = BayesianEstimator.predictive.__doc__

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draws of labels, (rows, n_samples).

        Args:
            X: rows to predict.
            n_samples: draws of each.
            random_state: a seed.
        """
        check_is_fitted(self, "posterior_")
        if len(self.classes_) == 1:
            rows = len(self._check_inputs(X, reset=False))
            return np.full((rows, whole_number("n_samples", n_samples)), self.classes_[0])
        drawn = self._reseeded(X, n_samples, random_state).sample(n_samples)
        return self.classes_[np.moveaxis(drawn, 0, -1)]

    # -- targets

    def _check_targets(self, y: Any, *, first: bool, classes: Any = None) -> np.ndarray:
        y = column_or_1d(y, warn=True)
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

    def _extra_weight(self, y: np.ndarray) -> np.ndarray | float:
        if self.class_weight is None:
            return 1.0
        by_class, known = np.ones(len(self.classes_)), self.classes_.tolist()
        if isinstance(self.class_weight, dict):
            unknown = [label for label in self.class_weight if label not in known]
            if unknown:
                raise ValueError(
                    f"class_weight names {unknown[0]!r}, which is not among the classes {known}"
                )
            for label, weight in self.class_weight.items():
                by_class[known.index(label)] = weight
        else:
            present = np.unique(y)
            by_class[present] = compute_class_weight(
                self.class_weight, classes=self.classes_[present], y=self.classes_[y]
            )
        return by_class[y]

    def _learn_targets(self, rows: Rows) -> None:
        pass

    def _inner_targets(self, y: np.ndarray) -> np.ndarray:
        return y.astype(np.int32)

    def _likelihood(self) -> Likelihood:
        return likelihoods.Categorical()

    def _outputs(self) -> int:
        return max(2, len(self.classes_))

    def _fit(
        self,
        model: Model,
        rows: Rows,
        method: Method,
        start: Posterior | None,
        seed: int,
        watch: Validation | None = None,
        share: float = 1.0,
    ) -> Posterior:
        if len(self.classes_) == 1:  # nothing to learn
            return before_data(model, self._prepared(rows)[0])
        return super()._fit(model, rows, method, start, seed, watch, share)


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
