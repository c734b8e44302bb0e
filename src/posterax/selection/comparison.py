"""The table of a comparison, what is to be said of it, and its verdict."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..posteriors import Evidence
from .score import Score

SMALL = 4.0  # nats: below it a difference in elpd is small whatever its error (Sivula et al. 2020)


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
        gap, error = 0 - self.differences[1:], self.difference_errors[1:]
        ahead = f"{gap[0]:.1f} ± {error[0]:.1f} nats ahead of {self.names[1]}"
        if self.kinds:
            return self._by_evidence(gap[0], error[0], ahead)
        others = zip(self.names[1:], gap, error, strict=True)
        close = [name for name, g, e in others if g < SMALL or not g > 2 * e]
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
        if "bound" in self.kinds:
            return (
                "Each bound lies below its evidence by KL(q ‖ posterior), which nothing tells: "
                "bounds give no probabilities of models, and the evidences may be in another order."
            )
        if "approximation" in self.kinds:
            return (
                "Nothing tells how far an approximation is from its evidence: the probabilities "
                "are approximations too."
            )
        return ""

    def __str__(self) -> str:
        table = self.to_pandas()
        shown = table.drop(columns="warning")
        formats = dict.fromkeys(shown.columns.drop("kind", errors="ignore"), "{:.1f}".format)
        formats |= dict.fromkeys(("weight", "probability"), "{:.2f}".format)
        text = shown.to_string(formatters=formats)
        notes = [f"{name}: {self.warnings[name]}" for name in self.names if name in self.warnings]
        return "\n".join(filter(None, [text, self.verdict, self.note, *notes]))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For notebooks."""
        return self.to_pandas()._repr_html_() + f"<p>{self.verdict} {self.note}</p>"


def listed(words: Sequence[str]) -> str:
    """Words with commas, and an "and" before the last."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
