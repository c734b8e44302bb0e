"""Regression on a table."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array, column_or_1d

from .. import likelihoods
from .._util.interrupts import interruptible
from ..infer.base import Method
from ..likelihoods import Likelihood
from ..model import Model
from ..posteriors import Posterior
from ..predictive import Predictive
from ..recalibrate.scaling import measure, reaches, spread_of
from . import settings, targets
from .auto import Blended
from .averaging import apart
from .base import BayesianEstimator
from .large import LargeTable
from .recognise import Recognised
from .standardise import MEASURABLE_ROWS, Given, Rows, held_out

MOST_LESS = 0.75  # of the squared error, that can be owing to the difference between folds


@dataclass(eq=False, repr=False)
class BayesianRegressor(RegressorMixin, BayesianEstimator):
    r"""A Bayesian neural network for tables: predictions with honest intervals.

    Inputs and targets are standardised inside, answers are in the units of ``y``. By default
    several unlike models are cross-fitted, networks by variational inference and by chains, alone
    and as corrections of scikit-learn's boosted trees, and weighted by what they said of rows they
    had not seen; ``tried_`` has the list. The defaults were chosen on validation splits
    (docs/tables.md).

    Args:
        method: ``"auto"``, the best of several models; or the name of one method, such as
            ``"bayes_by_backprop"``, ``"deep_ensemble"``, ``"laplace"``, ``"swag"`` or ``"nuts"``
            (docs/tables.md has all of them), or a method object, which is used as it is. Where an
            argument of a single network or fit is set (``hidden_layer_sizes``, ``steps``,
            ``prior``, …), ``"auto"`` is ``"bayes_by_backprop"``.
        quality: of ``"auto"``: ``"fast"`` (seconds), ``"good"``, or ``"best"`` (several times as
            long).
        likelihood: of targets: ``"auto"`` (by what they look like; ``target_`` says what and why),
            ``"student"`` or ``"gaussian"`` (real numbers), ``"non_negative"`` (those whose
            intervals end at 0), ``"log_normal"`` (above 0),
            ``"zero_inflated"`` (many zeros), ``"negative_binomial"`` or ``"poisson"`` (counts),
            ``"beta"`` (shares). All predict the noise of each row.
        hidden_layer_sizes: widths of the hidden layers (default: by the number of rows).
        activation: ``"relu"``, ``"tanh"``, ``"silu"``, …
        prior: a prior of ``px.priors`` over the weights; the default learns its widths for
            ``method="bayes_by_backprop"``, and is ``Gaussian(1.0, fan_in=True)`` for others.
        noise: ``"predicted"``, by the likelihood, from the network; ``"learned"``, one scale for
            all rows, of a Student t with 8 degrees of freedom, so that a few outliers do not rule;
            or the known deviation of Gaussian noise, in the units of ``y``.
        calibrate: set the width of the intervals by rows that models have not seen: those of other
            folds, or with a single method a fifth, held out of the first part of the fit. Of real
            numbers alone; off for tables of fewer than 100 rows, for noise that is given, and for
            methods that sample.
        members: networks fitted side by side, for Bayes by Backprop and deep ensembles.
        temperature: weight of the KL in Bayes by Backprop, a number or a pair (coldest, warmest)
            between which the members are spread; 1 is the posterior, below 1 the data count
            1 / temperature times.
        epochs: passes over the data (default: by the number of rows). ``"auto"``: until the ELBO
            has settled, for ``"ivon"`` and objects such as ``px.BayesByBackprop()``.
        steps: steps of optimisation, or draws per chain, instead of epochs.
        time_limit: seconds for all of ``fit``; where they are too few, there are fewer steps, and
            a warning says how many. Compilation may add to it.
        batch_size: rows per step (default: all of a small table).
        learning_rate: step size of Adam (default 0.01).
        early_stopping: hold rows out, and stop when their likelihood no longer improves.
        validation_fraction: the share of rows to hold out.
        n_iter_no_change: looks at the held-out rows without improvement before stopping.
        samples: posterior draws per prediction.
        random_state: a seed; the same seed and data give the same bits on one machine.
        verbose: show a progress bar (default: where someone is watching).
        warm_start: start the next ``fit`` from the last one's posterior.
        columns: what to make of columns: a dictionary such as ``{"zip": "category"}`` (or "number",
            "ordinal"), ``"auto"`` to look at each, ``None`` to look where a data frame has text,
            gaps or dates, and to take numbers as they are; ``columns_.summary()`` says what.

    Example:
        >>> from sklearn.datasets import load_diabetes
        >>> import posterax as px
        >>> X, y = load_diabetes(return_X_y=True)
        >>> regressor = px.BayesianRegressor(steps=300, random_state=0).fit(X[:331], y[:331])
        >>> mean, std = regressor.predict(X[331:], return_std=True)
        >>> low, high = regressor.predict_interval(X[331:], 0.9)
        >>> bool(((low < mean) & (mean < high)).all())
        True
    """

    _: KW_ONLY
    noise: float | str | np.ndarray = "predicted"
    calibrate: bool = True
    temperature: float | tuple[float, float] = (0.1, 0.7)
    likelihood: str = "auto"

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Update with new rows: the posterior so far is their prior.

        The first call fits, and its rows fix the standardisation: give it a representative part.
        """
        return self._attempt(self._update, Given(X, y, sample_weight))

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """The mean of the predictive distribution, and with ``return_std`` its deviation."""
        predictive = self.predictive(X)
        return (predictive.mean, predictive.std) if return_std else predictive.mean

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _answer(
        self, x: np.ndarray, samples: int | None = None, seed: int | None = None
    ) -> Predictive:
        predictive = self._unbounded(x, samples, seed)
        return predictive.at_least(0.0) if self.target_.name == "non_negative" else predictive

    def _unbounded(
        self, x: np.ndarray, samples: int | None = None, seed: int | None = None
    ) -> Predictive:
        shift, scale = self.y_scaling_
        if self._target_shape == ():
            shift, scale = shift[0], scale[0]
        predictive = super()._answer(x, samples, seed)
        if self._symmetric() or np.any(scale != 1):
            predictive = predictive.in_units(shift, scale)
        return predictive if np.all(self.spread_ == 1) else predictive.widened(self.spread_)

    def _first_fit(self, model: Model, rows: Rows, method: Method, start: Posterior | None) -> None:
        n = len(rows.x)
        unknown, optimises = isinstance(self.noise, str), method.needs.counts == "epochs"
        calibrates = self.calibrate and unknown and optimises and n >= MEASURABLE_ROWS
        calibrates = calibrates and self._symmetric()
        before = getattr(self, "spread_", None) if start is not None and calibrates else None
        self.spread_ = np.ones(self._target_shape) if before is None else before
        if start is not None or not calibrates:
            # a start fitted to all rows can tell nothing about rows it was not fitted to
            return super()._first_fit(model, rows, method, start)
        rows, watch = self._watched(rows)
        held = held_out(rows, self._fit_seed)
        weight = rows.weight.copy()
        weight[held] = 0  # not left out: the shapes, and so the compiled program, stay the same
        given = 1.0 if self.epochs is None and self.steps is None else sum(settings.PARTS)
        first, second = (part / given for part in settings.PARTS)
        others, seed = rows._replace(weight=weight), self._fit_seed
        times = [part / sum(settings.PARTS) for part in settings.PARTS]
        with interruptible():  # a press between the two ends the second
            args = (None, seed, watch, first, times[0])
            self.posterior_ = self._fit(model, others, method, *args)
            self.spread_ = measure(self._unbounded(rows.x[held]), rows.y[held], rows.weight[held])
            self.updates_, record = 0, self.posterior_.record
            if not record.interrupted:
                again = (self.posterior_, seed + 1, watch, second, times[1])
                self.posterior_ = self._fit(model, rows, method, *again)
                self.posterior_.record.follow(record)

    def _blend(self, rows: Rows, table: LargeTable | None = None) -> None:
        self.spread_ = np.ones(self._target_shape)
        super()._blend(rows, table)
        for line in self.tried_:  # densities in the units of y
            line["nll"] += float(np.sum(np.log(self.y_scaling_.scale)))
        blended, self._blended = self._blended, None  # an estimator does not keep its rows
        assert blended is not None
        if self.calibrate and self._symmetric() and len(rows.x) >= MEASURABLE_ROWS:
            self.spread_ = _spread(blended, self._fit_seed)

    # -- targets

    def _check_targets(self, given: Given, *, first: bool) -> np.ndarray:
        y = check_array(given.y, ensure_2d=False, dtype=None, input_name="y", ensure_min_samples=1)
        if y.dtype.kind not in "biuf":
            try:
                y = y.astype(np.float64)
            except (TypeError, ValueError):
                raise ValueError(
                    f"y must be numeric for regression, got {y.dtype} with {y.flat[0]!r}: use "
                    "px.BayesianClassifier for classes"
                ) from None
        y = y.astype(np.float64)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        if y.ndim > 2:
            raise ValueError(f"y must have shape (rows,) or (rows, targets), got {y.shape}")
        if first:
            self._target_shape = y.shape[1:]
            self.n_outputs_ = int(np.prod(y.shape[1:]))
        elif y.shape[1:] != self._target_shape:
            raise ValueError(
                f"y must have shape (rows, *{self._target_shape}) as before, got {y.shape}"
            )
        elif self.target_.name == "non_negative" and np.any(y < 0):
            self.target_ = Recognised("real", f"values down to {y.min():.3g}: real numbers")
        return y

    def _learn_targets(self, rows: Rows) -> None:
        self.target_ = Recognised("real", "the noise is given")
        if isinstance(self.noise, str) and self.noise == "predicted":
            self.target_ = targets.choose(self.likelihood, rows.y, rows.weight)
        elif self.likelihood != "auto":
            raise ValueError(
                f"likelihood={self.likelihood!r} has noise of its own: leave noise at 'predicted'"
            )
        known = self.target_.name, rows.y, rows.weight
        self._of_targets = targets.likelihood_for(*known)
        self.y_scaling_ = targets.scaling(*known)

    def _symmetric(self) -> bool:
        """Whether targets may lie on both sides of any number."""
        return targets.CHOICES[self.target_.name] == "real"

    def _inner_targets(self, y: np.ndarray) -> np.ndarray:
        inner = self.y_scaling_(y.reshape(len(y), -1))
        return inner[:, 0] if self._target_shape == () else inner

    def _likelihood(self) -> tuple[Likelihood, int]:
        if isinstance(self.noise, str) and self.noise == "predicted":
            # until a fit has seen its targets they are real numbers
            made = getattr(self, "_of_targets", None) or targets.likelihood_for("real", np.ones(1))
            return made, int(np.prod(made.outputs_for((self.n_outputs_,))))
        if isinstance(self.noise, str):
            likelihood = likelihoods.StudentT(settings.DEGREES, self.noise, initial=0.3)
            return likelihood, self.n_outputs_
        noise = np.asarray(self.noise, np.float64) / self.y_scaling_.scale
        return likelihoods.Gaussian(noise), self.n_outputs_


def _spread(blended: Blended, seed: int) -> np.ndarray:
    r"""How much wider or narrower intervals have to be than the blend has them.

    Measured on rows left out. But these are answered by the networks of one fold, and new rows by
    those of all: the squared error of their mean is smaller by what ``apart`` says, and their
    variance larger by as much.
    """
    own, parts = blended.rows, blended.left_out()
    order = np.concatenate([rows for rows, _ in parts])
    y, weight = own.y[order], own.weight[order]
    reach = [reaches(predictive, own.y[rows]) for rows, predictive in parts]
    spread = spread_of(np.concatenate(reach, axis=1), weight)
    mean, variance = (
        np.concatenate([getattr(predictive, name) for _, predictive in parts])
        for name in ("mean", "variance")
    )
    error, said = (np.average(a, axis=0, weights=weight) for a in (np.square(y - mean), variance))
    less = np.minimum(apart(blended, seed), MOST_LESS * error)
    return np.asarray(spread * np.sqrt((1 - less / error) / (1 + less / said)))
