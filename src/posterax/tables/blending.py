"""``method="auto"`` in the estimators: which models are fitted, in what time, and what they say."""

import dataclasses
import sys
import time
import warnings
from functools import partial
from typing import Any

import jax
import numpy as np

from .._util.admit import admit
from .._util.streams import watched
from ..errors import ConvergenceWarning
from ..fitting.fit import fit
from ..model import Model
from ..posteriors import Posterior
from .auto import Blended, Task, fit_blend
from .portfolio import QUALITIES, Part, portfolio
from .standardise import Rows, Standardiser
from .stored import Whole
from .timing import fit_in_time
from .trees import Forests

AUTO = "auto"
SINGLE = "bayes_by_backprop"
# arguments of one network or one fit: whoever sets one wants that, and not a portfolio
OF_ONE = (
    "hidden_layer_sizes", "activation", "prior", "members", "temperature", "epochs", "steps",
    "batch_size", "learning_rate", "early_stopping", "warm_start", "noise",
)  # fmt: skip
ENOUGH = 0.1  # of the time, without which no further model is begun


class Blending:
    """What an estimator does where it is asked for the best and not for a method."""

    method: Any
    quality: str
    verbose: bool | None
    x_scaling_: Standardiser
    posterior_: Posterior
    forests_: Forests | None = None
    tried_: list[dict[str, Any]]  # of each model: what it scored, its weight, and its time
    updates_: int
    _fit_seed: int
    _clock: Any
    _blended: Blended | None = None

    def _resolved(self) -> Any:
        """The method: ``"auto"``, where nothing is set that belongs to a single network."""
        if self.quality not in QUALITIES:
            words = ", ".join(map(repr, QUALITIES))
            raise ValueError(f"quality must be one of {words}, got {self.quality!r}")
        defaults = {f.name: f.default for f in dataclasses.fields(type(self))}  # type: ignore
        changed = [name for name in OF_ONE if name in defaults and self._set(name, defaults[name])]
        single = not (isinstance(self.method, str) and self.method == AUTO)
        if (single or changed) and self.quality != defaults["quality"]:
            what = f"method={self.method!r}" if single else f"{changed[0]}="
            raise ValueError(
                f"quality={self.quality!r} is of several models, and {what} asks for one: leave "
                "one of the two out"
            )
        return self.method if single else SINGLE if changed else AUTO

    def _set(self, name: str, default: Any) -> bool:
        value = getattr(self, name)
        same = type(value) is type(default) and not isinstance(value, np.ndarray)
        return not (same and value == default)

    def _fit_blend(
        self, rows: Rows, task: Task, *, several: bool, whole: Whole | None = None
    ) -> None:
        """Fit a portfolio to standardised rows, and keep what it found.

        Where ``rows`` are a sample, networks learn from the ``whole`` table.
        """
        plan = portfolio(
            len(rows.x) if whole is None else whole.rows, classes=task.classes, trees=not several,
            quality=self.quality, streamed=whole is not None,
        )  # fmt: skip
        works = {part.name: part.work for part in plan.parts}
        begun: list[str] = []
        tell = self._teller()

        def learn(model: Model, data: tuple[np.ndarray, ...], part: Part) -> Posterior | None:
            seed = self._fit_seed + len(begun)
            begun.append(part.name)
            method = part.method
            options: dict[str, Any] = {"steps": part.steps, "epochs": None}
            options |= {"progress": self.verbose}
            source: Any = None if whole is None else whole.stream(based=part.based)
            if source is None:
                x, y = (self._admitted(a, name) for a, name in zip(data, ("X", "y"), strict=False))
                source = x, y, data[2]
                batches = None if method.needs.all_data else plan.batch_size or len(x)
                options |= {"batch_size": batches}

            def one(method: Any, options: dict[str, Any]) -> Posterior:
                return fit(model, source, method, key=seed, **options)

            if self._clock is None:
                return one(method, options)
            if len(begun) > 1 and self._clock.left < ENOUGH * self._clock.limit:
                return None
            share = works[part.name] / sum(works.values())
            return fit_in_time(self._clock, share, method, options, one)

        given: dict[str, Any] = {}
        if whole is not None:
            given = {"fold": whole.fold, "grown": partial(whole.store, tell=tell)}
        with warnings.catch_warnings():
            # a part may be short of its optimum: it is judged by rows that it left out
            warnings.simplefilter("ignore", ConvergenceWarning)
            blended = fit_blend(rows, task, plan, self._fit_seed, learn, tell, **given)
        if whole is not None:
            blended.posterior.record.settings["examples"] = whole.total
        self.posterior_, self.forests_ = blended.posterior, blended.forests
        self.tried_, self._blended, self.updates_ = blended.summary, blended, 0

    def _admitted(self, values: np.ndarray, name: str) -> np.ndarray:
        dtype = np.float64 if jax.config.read("jax_enable_x64") else np.float32
        return admit(values, name, dtype)

    def _teller(self) -> Any:
        """Says what is going on, on standard error, where someone is watching or wants it."""
        if self.verbose is False or (self.verbose is None and not watched("stderr")):
            return lambda line: None
        began = time.monotonic()

        def tell(line: str) -> None:
            print(f"{time.monotonic() - began:6.1f} s  {line}", file=sys.stderr, flush=True)

        return tell

    def _with_offsets(self, x: np.ndarray) -> np.ndarray:
        """Standardised inputs, and what the trees of each fold say of them."""
        forests = self.forests_
        return x if forests is None else np.concatenate([x, forests(x)], axis=1)
