"""A model's score and whether it can be trusted; several beside each other, and their verdict."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..posteriors import Evidence

K_HAT = 0.7  # above it, or a lower limit for few draws, importance weights have no useful variance
SPREAD = 0.4  # variance of a log likelihood above which WAIC's correction is no longer small
SMALL = 4.0  # nats: below it a difference in elpd is small whatever its error (Sivula et al. 2020)
NOTES = {
    "bound": "Nothing tells how far a bound is below its evidence: bounds give no probabilities of "
    "models, and the evidences may be in another order.",
    "approximation": "Nothing tells how far an approximation is from its evidence: the "
    "probabilities are approximations too.",
}  # by the kind of an evidence


@dataclasses.dataclass(frozen=True)
class Score:
    """What ``loo``, ``waic`` and ``heldout`` return; ``print`` it. All in nats, larger is better.

    ``pointwise`` is log p(yₙ | …) of each example, ``weight`` how often each counts, ``excess`` how
    much the density of the fit itself is above it, and ``khat`` (leave-one-out) the shape of the
    tail of each example's weights: NaN where it cannot be told. ``examples`` tells one sequence of
    examples from another.
    """

    by: str
    pointwise: np.ndarray
    weight: np.ndarray
    excess: np.ndarray | None = None
    khat: np.ndarray | None = None
    draws: int = 0
    approximate: bool = False  # the draws were not of the posterior itself
    examples: str = ""  # a digest of their targets, in order

    @property
    def n(self) -> float:
        """How many examples there are: the sum of their weights."""
        return float(self.weight.sum())

    @property
    def elpd(self) -> float:
        """The expected log predictive density of as many new examples: the sum over all."""
        return float(self.weight @ self.pointwise)

    @property
    def se(self) -> float:
        """Its standard error, √(N Var[pointwise])."""
        return standard_error(self.pointwise, self.weight)

    @property
    def p(self) -> float:
        """The effective number of parameters; NaN on held-out data."""
        return math.nan if self.excess is None else float(self.weight @ self.excess)

    @property
    def limit(self) -> float:
        """The largest k-hat at which an example's score can be trusted, for so many draws."""
        return min(1 - 1 / math.log10(max(self.draws, 11)), K_HAT)

    @property
    def doubtful(self) -> np.ndarray:
        """Rows of the examples whose score cannot be trusted."""
        doubtful: np.ndarray | bool = False
        if self.by == "loo" and self.khat is not None:
            doubtful = ~(self.khat <= self.limit)
        elif self.by == "waic" and self.excess is not None:
            doubtful = self.excess > SPREAD
        return np.flatnonzero((self.weight > 0) & doubtful)

    @property
    def ok(self) -> bool:
        """Whether all examples' scores can be trusted."""
        return len(self.doubtful) == 0

    @property
    def verdict(self) -> str:
        """What the numbers mean and what to do, in words."""
        note = " The draws are of an approximation of the posterior, and so is this score."
        return self.doubts + note * self.approximate

    @property
    def doubts(self) -> str:
        """What is to be said of the examples, without the draws."""
        many = f"{len(self.doubtful)} of {len(self.weight)} examples"
        if self.by == "heldout":
            return "Data that the fit has not seen: nothing is estimated but the mean."
        if self.by == "waic" and self.ok:
            return f"No example's log likelihood varies by more than {SPREAD:g}."
        if self.by == "waic":
            varies = f"The log likelihood of {many} varies by more than {SPREAD:g}"
            return f"{varies} over the posterior, too much for WAIC: use loo."
        if self.khat is None:
            return "Every state was counted: leave-one-out is exact."
        if self.ok:
            return f"k-hat is at most {self.khat.max():.2f}: this can be trusted."
        worst = int(self.doubtful[np.argmax(np.nan_to_num(self.khat[self.doubtful], nan=np.inf))])
        return (
            f"{many} have a k-hat above {self.limit:.2f} (the largest, {self.khat[worst]:.2f}, at "
            f"row {worst}): the posterior without such an example is out of reach of these draws. "
            "Take more draws, fit without those examples and score them, or hold data out."
        )

    def __str__(self) -> str:
        lines = [f"{self.by}: elpd {self.elpd:.1f} ± {self.se:.1f} nats, {self.n:g} examples"]
        if self.excess is not None:
            lines.append(f"effective number of parameters {self.p:.1f}, from {self.draws:,} draws")
        return "\n".join([*lines, self.verdict])

    __repr__ = __str__


def standard_error(values: np.ndarray, weight: np.ndarray) -> float:
    """Of Σ weightₙ valuesₙ, examples being draws of a population: √(N Var), N = Σ weight.

    Example:
        >>> import numpy as np
        >>> from posterax.selection.score import standard_error
        >>> print(round(standard_error(np.array([1.0, 3.0]), np.ones(2)), 3))  # √(2 · 2)
        2.0
    """
    n = float(weight.sum())
    if n <= 1:
        return math.nan
    mean = weight @ values / n
    return math.sqrt(n * float(weight @ np.square(values - mean)) / (n - 1))


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What ``px.compare`` returns; ``print`` it, or take ``to_pandas()``.

    ``names`` are the models, the best first; ``scores`` a ``Score`` or an ``Evidence`` of each;
    ``differences`` (score − the best score) have standard errors ``difference_errors``;
    ``weights`` are those of stacking, or the models' probabilities by the evidence (NaN where a
    score is a bound, which gives none); ``warnings`` are words by name.
    """

    by: str
    names: list[str]
    scores: list[Any]
    differences: np.ndarray
    difference_errors: np.ndarray
    weights: np.ndarray
    warnings: dict[str, str]

    @property
    def best(self) -> str:
        """The name of the model with the largest score."""
        return self.names[0]

    def to_pandas(self) -> Any:
        """A ``DataFrame``, a row for each model."""
        import pandas as pd

        pointwise = isinstance(self.scores[0], Score)
        table: dict[str, Any] = {
            "score": [s.elpd if pointwise else s.value for s in self.scores],
            "se": [s.se if pointwise else s.error for s in self.scores],
            "difference": self.differences,
            "difference_se": self.difference_errors,
        }
        if not np.isnan(self.weights).any():
            table["weight" if pointwise else "probability"] = self.weights
        if not pointwise:
            table["kind"] = [s.kind for s in self.scores]
        elif self.by != "heldout":
            table["p"] = [s.p for s in self.scores]
        table["warning"] = [self.warnings.get(name, "") for name in self.names]
        return pd.DataFrame(table, index=pd.Index(self.names, name=self.by))

    @property
    def verdict(self) -> str:
        """Which model is best, and by how much, in a sentence or two."""
        if len(self.names) == 1:
            return f"{self.best} is alone."
        gaps, errors = 0 - self.differences[1:], self.difference_errors[1:]
        ahead = f"{gaps[0]:.1f} ± {errors[0]:.1f} nats ahead of {self.names[1]}"
        if self.kinds:
            return self._by_evidence(gaps[0], errors[0], ahead)
        others = zip(self.names[1:], gaps, errors, strict=True)
        close = [name for name, gap, error in others if gap < SMALL or not gap > 2 * error]
        if not close:
            return f"{self.best} predicts best, {ahead}."
        return (
            f"{self.best} leads, but {listed(close)} may be as good (a difference below {SMALL:g} "
            "nats or two standard errors): prefer the simplest, or average them."
        )

    def _by_evidence(self, gap: float, error: float, ahead: str) -> str:
        if error > 0 and gap <= 2 * error:
            return f"{self.best} leads, {ahead}: no more than the errors. Take more samples."
        if "bound" in self.kinds:
            what = "bound" if self.kinds == {"bound"} else "score"
            return f"{self.best} has the highest {what}, {ahead}."
        if self.weights[0] >= 0.95:
            return f"{self.best} is best, {ahead}."
        share = f"{100 * self.weights[0]:.0f} % of the probability"
        return f"{self.best} leads with {share}, {ahead}: not decided."

    @property
    def kinds(self) -> set[str]:
        """What kinds of evidence the scores are, as ``Evidence`` has them; none for others."""
        return {s.kind for s in self.scores if isinstance(s, Evidence)}

    @property
    def note(self) -> str:
        """What the scores are, where they are not what they stand for."""
        return next((note for kind, note in NOTES.items() if kind in self.kinds), "")

    def __str__(self) -> str:
        table = self.to_pandas().drop(columns="warning")
        formats = dict.fromkeys(table.columns.drop("kind", errors="ignore"), "{:.1f}".format)
        formats |= dict.fromkeys(("weight", "probability"), "{:.2f}".format)
        text = table.to_string(formatters=formats)
        notes = [f"{name}: {self.warnings[name]}" for name in self.names if name in self.warnings]
        return "\n".join(filter(None, [text, self.verdict, self.note, *notes]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For notebooks."""
        return self.to_pandas()._repr_html_() + f"<p>{self.verdict} {self.note}</p>"


def listed(words: Sequence[str]) -> str:
    """Words with commas, and an "and" before the last."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
