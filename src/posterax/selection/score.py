"""A model's score, example by example, and whether it can be trusted."""

import dataclasses
import math

import numpy as np

K_HAT = 0.7  # above it, or a lower limit for few draws, importance weights have no useful variance
SPREAD = 0.4  # variance of a log likelihood above which WAIC's correction is no longer small


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
        counts = self.weight > 0
        if self.by == "loo" and self.khat is not None:
            return np.flatnonzero(counts & ~(self.khat <= self.limit))
        if self.by == "waic" and self.excess is not None:
            return np.flatnonzero(counts & (self.excess > SPREAD))
        return np.flatnonzero(np.zeros(len(self.weight), bool))

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
        if self.by == "waic":
            if self.ok:
                return f"No example's log likelihood varies by more than {SPREAD:g}."
            return (
                f"The log likelihood of {many} varies by more than {SPREAD:g} over the posterior, "
                "too much for WAIC: use loo, which says which of them it can do."
            )
        if self.khat is None:
            return "Every state was counted: leave-one-out is exact."
        if self.ok:
            return f"k-hat is at most {self.khat.max():.2f}: this can be trusted."
        worst = int(self.doubtful[np.argmax(np.nan_to_num(self.khat[self.doubtful], nan=np.inf))])
        return (
            f"{many} have a k-hat above {self.limit:.2f} (the largest, {self.khat[worst]:.2f}, at "
            f"row {worst}): without such an example the posterior would be another, which these "
            "draws do not reach. Take more draws, fit again without those examples and score them "
            "by posterior.predict(x).log_prob(y), or hold data out."
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
