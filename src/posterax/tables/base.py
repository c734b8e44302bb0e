"""What both estimators share: from a table to a posterior, and back to the table's units."""

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from .. import networks
from .._util.admit import admit
from .._util.checks import fraction, whole_number
from .._util.interrupts import interruptible
from ..fitting.fit import fit
from ..fitting.validation import Validation
from ..infer.base import Method
from ..infer.ensembles.ensemble import DeepEnsemble
from ..infer.variational.bayes_by_backprop import BayesByBackprop
from ..likelihoods import Likelihood
from ..model import Model
from ..posteriors import GaussianMixture, MeanFieldGaussian, Posterior, prior_posterior
from ..predictive import Predictive
from ..priors import Prior
from . import settings
from .auto import Task
from .blending import AUTO, SINGLE, Blending
from .columns import Columns, has_more_than_numbers
from .large import LargeTable, open_table
from .recognise import Recognised
from .standardise import Given, Rows, Standardiser, distinct, padded, standardiser, text_column
from .stored import Whole
from .timing import Clock, fit_in_time

NO_WEIGHT = "sample_weight is zero for every row: give at least one row a weight above 0"
LEAST_ROWS = 128  # of a prediction: every smaller one is padded to it, so all round alike


@dataclass(eq=False, repr=False)
class Arguments:
    """What both estimators are made with; scikit-learn reads them where they are stored."""

    method: str | Method = "auto"
    _: KW_ONLY
    quality: str = "good"
    hidden_layer_sizes: int | Sequence[int] | None = None
    activation: str = "relu"
    prior: Prior | None = None
    members: int = 6
    temperature: float | tuple[float, float] = 1.0
    epochs: float | str | None = None
    steps: int | None = None
    time_limit: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    early_stopping: bool = False
    validation_fraction: float = 0.1
    n_iter_no_change: int = 10
    samples: int = 100
    random_state: int | np.random.RandomState | None = None
    verbose: bool | None = None
    warm_start: bool = False
    columns: str | None = None


class BayesianEstimator(Arguments, Blending, BaseEstimator):
    """Fitting, sequential updating, prediction and files; subclasses know the targets."""

    classes_: np.ndarray  # of a classifier
    y_scaling_: Standardiser  # of a regressor
    spread_: np.ndarray  # of a regressor: its deviations are so many times the posterior's own
    target_: Recognised  # of a regressor
    columns_: Columns  # of a table with more than numbers: what became of each
    card_: dict[str, Any]  # of an estimator in a file: where it comes from
    posterior_: Posterior
    x_scaling_: Standardiser
    updates_: int  # parts learned after the first
    _clock: Clock | None = None  # of a fit with a time limit, while it lasts

    # -- what a subclass gives

    def _check_targets(self, given: Given, *, first: bool) -> np.ndarray:
        """Targets as numbers, in the user's units or as labels 0 … K−1."""
        raise NotImplementedError

    def _learn_targets(self, rows: Rows) -> None:
        """Take what standardises targets from the first data, where anything does."""

    def _inner_targets(self, y: np.ndarray) -> np.ndarray:
        """Targets as the model has them."""
        raise NotImplementedError

    def _likelihood(self) -> tuple[Likelihood, int]:
        """The likelihood, and how many outputs of the network it needs."""
        raise NotImplementedError

    def _extra_weight(self, y: np.ndarray, of: np.ndarray) -> np.ndarray | float:
        """Weights by target, for classes; the targets ``of`` tell how many there are of each."""
        return 1.0

    def _learns(self) -> bool:
        """Whether there is anything to learn; of one class there is not."""
        return True

    # -- learning

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn the posterior of the network's weights.

        Args:
            X: (rows, columns), an array or a data frame; or the path of a Parquet or CSV file, or
                of a folder of them, which may be larger than memory.
            y: (rows,) labels or numbers, or (rows, targets) numbers; of a path the column's name.
            sample_weight: how often each row counts: 2 is the row given twice; of a path the name
                of a column.
        """
        if isinstance(X, LargeTable):
            return self._attempt(self._learn, X)
        if isinstance(X, str | Path):
            opened = partial(open_table, X, y, sample_weight, verbose=self.verbose)
            return self._attempt(lambda opened: self._learn(opened()), opened)
        return self._attempt(self._learn, Given(X, y, sample_weight))

    def _attempt(self, learn: Callable[[Any], None], given: Any) -> Self:
        """A fit that fails leaves the estimator as it was."""
        before = dict(vars(self))
        clock = None if self.time_limit is None else Clock(self.time_limit)
        try:
            if clock is not None:
                self._clock = clock
            learn(given)
        except BaseException:
            self.__dict__ = before
            raise
        if clock is not None:
            del self._clock
            clock.tell()
        return self

    def _learn(self, given: Given | LargeTable) -> None:
        previous = getattr(self, "posterior_", None) if self.warm_start else None
        classes: Any = getattr(self, "classes_", ())
        table = given if isinstance(given, LargeTable) else None
        if table is not None and self._resolved() != AUTO:
            raise ValueError(
                f"method: a table of {table.rows:,} rows is not read at once, and only "
                "method='auto', without arguments of a single network or fit such as steps, "
                "learns from it; or read a part of it, and call fit(X, y)"
            )
        rows = self._rows_of_first(given)
        if self._resolved() == AUTO and self._learns():
            return self._blend(rows, table)
        self.forests_ = None
        model = self._model(len(rows.x))
        if previous is not None and not np.array_equal(classes, getattr(self, "classes_", ())):
            raise ValueError(
                f"warm_start=True continues with the classes {classes.tolist()}, but y has "
                f"{self.classes_.tolist()}: set warm_start=False"
            )
        before, now = (_sizes(m) for m in (previous.model if previous else model, model))
        if before != now:
            raise ValueError(
                f"warm_start=True continues a network with {before[0]} columns, hidden layers "
                f"{before[1:-1]} and {before[-1]} outputs, but this one needs {now[0]}, "
                f"{now[1:-1]} and {now[-1]}: set warm_start=False"
            )
        self._first_fit(model, rows, self._method(), previous)

    def _blend(self, rows: Rows, table: LargeTable | None = None) -> None:
        """The best of several models; of a large table ``rows`` are the sample."""
        likelihood, outputs = self._likelihood()
        task = Task(likelihood, outputs, outputs if likelihood.kind == "classification" else 0)
        inner, several = self._inner(rows), rows.y.ndim > 1
        if table is None:
            return self._fit_blend(inner, task, several=several)
        text = self.columns_.text

        def chunks() -> Iterator[tuple[Rows, np.ndarray]]:
            for part in table.chunks(text):
                whole = self._weighted(part.given, first=False, of=rows.y)
                yield self._inner(whole), part.numbers

        with Whole(table.rows, chunks, table.sample.numbers, self._fit_seed) as whole:
            self._fit_blend(inner, task, several=several, whole=whole)

    def _inner(self, rows: Rows) -> Rows:
        """As the model has them."""
        return rows._replace(x=self.x_scaling_(rows.x), y=self._inner_targets(rows.y))

    def _rows_of_first(self, given: Given | LargeTable) -> Rows:
        """The rows of a first fit, of a large table the sample; the scaling and the seeds."""
        if isinstance(given, LargeTable):
            # gaps that the sample has not may still come
            rows = self._weighted(given.sample.given, first=True, encodes=True)
        else:
            rows = self._rows(given, first=True)
        self.x_scaling_ = standardiser(rows.x, rows.weight)
        self._learn_targets(rows)
        random = check_random_state(self.random_state)
        self._network_seed, self._fit_seed, self._predict_seed = (
            int(s) for s in random.randint(2**31 - 1, size=3)
        )
        return rows

    def _first_fit(self, model: Model, rows: Rows, method: Method, start: Posterior | None) -> None:
        rows, watch = self._watched(rows)
        self.posterior_ = self._fit(model, rows, method, start, self._fit_seed, watch)
        self.updates_ = 0

    def _update(self, given: Given) -> None:
        """The posterior so far is the prior of the new data, member by member."""
        method = self._method()
        before: Any = getattr(self, "posterior_", None)
        known = isinstance(before, MeanFieldGaussian | GaussianMixture)
        if not (isinstance(_member(method, 0), BayesByBackprop) and (known or before is None)):
            raise ValueError(
                "partial_fit needs a posterior that can be the next prior, of "
                "method='bayes_by_backprop' and, for a classifier, of two classes or more; got "
                f"{type(method if before is None else before).__name__}"
            )
        if before is None:
            rows = self._rows_of_first(given)
            return self._first_fit(self._model(len(rows.x)), rows, method, None)
        rows = self._rows(given, first=False)
        self.updates_ += 1
        several = isinstance(before, GaussianMixture)
        parts = [before.component(i) for i in range(before.members)] if several else [before]
        members = method.members if isinstance(method, DeepEnsemble) else 1
        if members != len(parts):
            raise ValueError(
                f"members={members}, but the posterior so far has {len(parts)}: partial_fit goes "
                "on with as many as there are; call fit to start again"
            )
        rows, watch = self._watched(rows)
        learned: list[Any] = []
        with interruptible():  # a press between two fits ends the next
            for number, part in enumerate(parts):
                model = Model(before.model.network, part.as_prior(), before.model.likelihood)
                seed = self._fit_seed + 1000 * self.updates_ + number
                own, time = _member(method, number), 1 / len(parts)
                learned.append(self._fit(model, rows, own, part, seed, watch, time=time))
                if learned[-1].record.interrupted:
                    was = "partial_fit stopped: the posterior is the one before it"
                    raise KeyboardInterrupt(was)
        self.posterior_ = learned[0]
        if several:
            trees = [(p.mu, p.rho, p.state) for p in learned]
            mu, rho, state = jax.tree.map(lambda *a: jax.numpy.stack(a), *trees)
            own = {"mu": mu, "rho": rho, "record": learned[-1].record}
            self.posterior_ = GaussianMixture(before.model, state, before.targets, **own)

    def _rows(self, given: Given, *, first: bool) -> Rows:
        return distinct(self._weighted(given, first=first))

    def _weighted(
        self, given: Given, *, first: bool, of: np.ndarray | None = None, encodes: bool = False
    ) -> Rows:
        """Rows as numbers; ``of``: where they are a part, targets that stand for the whole."""
        if given.y is None:
            name = type(self).__name__
            raise ValueError(f"requires y to be passed, but the target y is None: {name}")
        learning = first or of is not None
        X = self._check_inputs(given.X, reset=first, learning=learning, encodes=encodes)
        y = self._check_targets(given, first=first)
        check_consistent_length(X, y)
        weight = None if given.weight is None else np.asarray(given.weight)
        if of is None and weight is not None and weight.size and not weight.any():
            raise ValueError(NO_WEIGHT)
        if of is not None and weight is not None and not weight.any():  # of a part that is allowed
            weight = np.zeros(len(y))
        else:
            weight = _check_sample_weight(
                weight, X, dtype=np.float64, ensure_non_negative=True, copy=True
            )
        counted = weight * self._extra_weight(y, y if of is None else of)
        if of is None:
            self._look_at(weight, given.weight is not None)
            if not np.any(counted > 0):
                raise ValueError(NO_WEIGHT)
        return Rows(X, y, counted, weight)

    def _look_at(self, weight: np.ndarray, given: bool) -> None:
        """Warn of weights that sum to far less than there are rows."""
        if given and 0 < weight.sum() < 0.1 * np.count_nonzero(weight):
            warnings.warn(
                f"sample_weight sums to {weight.sum():.3g}, so the {len(weight)} rows count as so "
                "many: scale the weights until their sum is the number of rows",
                stacklevel=6,
            )

    def _check_inputs(
        self, X: ArrayLike, *, reset: bool, learning: bool | None = None, encodes: bool = False
    ) -> np.ndarray:
        if reset:
            self.__dict__.pop("columns_", None)
            encodes = encodes or self.columns is not None or has_more_than_numbers(X)
        else:
            encodes = hasattr(self, "columns_")
        if encodes:
            return self._encoded(X, reset=reset, learning=reset if learning is None else learning)
        try:
            return validate_data(self, X, reset=reset, dtype=np.float64, ensure_min_samples=1)
        except ValueError as error:
            text = text_column(X) if "could not convert string" in str(error) else None
            if text is None:
                raise
            raise ValueError(
                f"X must be numeric, but {text}: encode text first, for instance with "
                "sklearn.preprocessing.OneHotEncoder, or set columns='auto'"
            ) from None

    def _encoded(self, X: ArrayLike, *, reset: bool, learning: bool) -> np.ndarray:
        """The matrix of a table with text, gaps and dates."""
        kinds: Any = "auto" if self.columns is None else self.columns
        if kinds != "auto" and not isinstance(kinds, dict):
            raise ValueError(
                "columns must be None, 'auto' or a dictionary such as {'zip': 'category'}, got "
                f"{kinds!r}"
            )
        if reset:
            self.columns_ = Columns.learn(X, None if kinds == "auto" else kinds)
            self.feature_names_in_ = np.array(self.columns_.names, dtype=object)
            self.n_features_in_ = len(self.columns_.names)
        encoded = self.columns_.transform(X, learning=learning)
        if not len(encoded):
            raise ValueError("X has no rows")
        return encoded

    def _method(self) -> Method:
        method = self._resolved()
        method = SINGLE if method == AUTO else method
        return settings.make_method(method, self.learning_rate, self.members, self.temperature)

    def _model(self, n: int) -> Model:
        likelihood, outputs = self._likelihood()
        columns = getattr(self, "columns_", None)
        inputs = self.n_features_in_ if columns is None else len(columns.names_out)
        hidden = settings.layer_sizes(self.hidden_layer_sizes, n)
        network = networks.MLP(
            inputs, outputs, hidden, activation=self.activation, key=self._network_seed
        )
        prior = self.prior
        if prior is None:
            method = SINGLE if self.method == AUTO else self.method
            prior = settings.default_prior(likelihood.kind == "classification", method)
        return Model(network, prior, likelihood)

    def _fit(
        self, model: Model, rows: Rows, method: Method, start: Posterior | None, seed: int,
        watch: Validation | None = None, share: float = 1.0, time: float = 1.0,
    ) -> Posterior:  # fmt: skip
        """One call of ``px.fit``, for a share of the steps and a part of the time."""
        if not self._learns():
            return prior_posterior(model, self._prepared(rows)[0])
        n = len(rows.x)
        size = self._batch_size(method, n)
        budget = settings.make_budget(method, n, self.epochs, self.steps, size, share)
        if budget["batch_size"] in (None, n) and n <= settings.FULL_BATCH:
            rows = padded(rows)
            budget["batch_size"] = None if method.needs.all_data else len(rows.x)
        data = self._prepared(rows)

        def learn(method: Method, options: dict[str, Any]) -> Posterior:
            return fit(model, data, method, key=seed, init=start, **options)

        options = budget | {"validation": watch, "progress": self.verbose}
        if self._clock is None:
            return learn(method, options)
        options |= settings.in_steps(method, n, budget)
        return fit_in_time(self._clock, time, method, options, learn)

    def _prepared(self, rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        dtype = np.float64 if jax.config.read("jax_enable_x64") else np.float32
        x = admit(self.x_scaling_(rows.x), "X", dtype)
        y = self._inner_targets(rows.y)
        return x, admit(y, "y", dtype), rows.weight

    def _batch_size(self, method: Method, n: int) -> int | None:
        """The user's, or minibatches for methods that live on them."""
        if self.batch_size is None and method.needs.batches > 1:
            return min(settings.BATCH, max(1, n // 10))
        return self.batch_size

    def _watched(self, rows: Rows) -> tuple[Rows, Validation | None]:
        """Rows to learn from, and for early stopping rows to watch, the same all through a fit."""
        if not self.early_stopping:
            return rows, None
        rows, held = self._hold_out(rows)
        x, y, weight = self._prepared(held)
        patience = whole_number("n_iter_no_change", self.n_iter_no_change)
        n = len(rows.x)
        size = self._batch_size(self._method(), n)
        size = size or (n if n <= settings.FULL_BATCH else settings.BATCH)
        every = max(1.0, 100 / max(1, -(-n // size)))  # epochs: about a hundred steps
        return rows, Validation(x, y, every=every, patience=patience, weight=weight)

    def _hold_out(self, rows: Rows) -> tuple[Rows, Rows]:
        n, share = len(rows.x), fraction("validation_fraction", self.validation_fraction)
        if n < 2:
            raise ValueError(f"early_stopping needs 2 rows or more to hold some out, got {n}")
        size, labels = max(1, round(share * n)), None
        if rows.y.dtype.kind in "iu":  # classes in proportion, where that is possible
            counts = np.unique(rows.y, return_counts=True)[1]
            labels = rows.y if min(counts) > 1 and len(counts) <= min(size, n - size) else None
        learned, held = train_test_split(
            np.arange(n), test_size=size, random_state=self._fit_seed, stratify=labels
        )
        return rows.at(learned), rows.at(held)

    # -- answering

    def predictive(self, X: ArrayLike, *, samples: int | None = None) -> Predictive:
        """The predictive distribution, in the units of ``y``.

        Args:
            X: rows to predict.
            samples: posterior draws (default: the estimator's ``samples``).

        Returns:
            A ``px.Predictive``: mean, epistemic, aleatoric, quantile, log_prob, sample.
        """
        check_is_fitted(self, "posterior_")
        return self._answer(self._check_inputs(X, reset=False), samples)

    def _answer(
        self, x: np.ndarray, samples: int | None = None, seed: int | None = None
    ) -> Predictive:
        """The predictive of a matrix, in the units of y."""
        dtype = jax.tree.leaves(self.posterior_.model.parameters)[0].dtype
        return self.posterior_.predict(
            admit(self._with_offsets(self.x_scaling_(x)), "X", dtype),
            samples=self.samples if samples is None else samples,
            key=self._predict_seed if seed is None else seed,
            least_rows=LEAST_ROWS,
        )

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """The central interval with this mass, as (low, high).

        Of y in regression; of the class probabilities, over the posterior, in classification.
        """
        return self.predictive(X).interval(level)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Draws of y, (rows, n_samples) or (rows, targets, n_samples).

        Args:
            X: rows to predict.
            n_samples: draws of each.
            random_state: a seed.
        """
        check_is_fitted(self, "posterior_")
        x, count = self._check_inputs(X, reset=False), whole_number("n_samples", n_samples)
        seed = int(check_random_state(random_state).randint(2**31 - 1))
        drawn = self._answer(x, max(count, self.samples), seed).sample(count)
        return np.moveaxis(drawn, 0, -1)

    @property
    def history_(self) -> dict[str, np.ndarray]:
        """The course of the last fit, an array for each quantity (``nll``, ``kl``, …)."""
        check_is_fitted(self, "posterior_")
        return self.posterior_.history

    def save(self, path: str | Path) -> None:
        """Write to one file (safetensors with a JSON header); ``px.load(path)`` reads it."""
        from .saved import save

        check_is_fitted(self, "posterior_")
        save(self, path)


def _member(method: Method, index: int) -> Any:
    """The method of one member of an ensemble, or the method itself."""
    if not isinstance(method, DeepEnsemble):
        return method
    if method.temperatures is None:
        return method.inside
    return dataclasses.replace(method.inside, temperature=method.temperatures[index])


def _sizes(model: Model) -> tuple[int, ...]:
    layers = model.network.params.layers
    return (layers[0].weight.shape[1], *(layer.weight.shape[0] for layer in layers))
