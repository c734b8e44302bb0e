r"""Temperature scaling: one number that makes class probabilities less, or more, sure.

    p_T(y | x) = E_w[ softmax(f(x, w) / T)_y ],   T = argmin −Σₙ log p_T(yₙ | xₙ)

over held-out data. Every draw's probabilities are raised to 1/T before they are averaged, so T = 1
is the predictive as it was. Or the average itself is: p_T ∝ (E_w softmax(f)_y)^(1/T).
"""

import dataclasses
import warnings
from typing import Any, Literal, get_args

import numpy as np
from scipy.optimize import minimize_scalar

from .._util.checks import above_zero, one_of, whole_number
from ..metrics.inputs import class_labels
from .base import Recalibration, probabilities, refuse_kind

Of = Literal["draws", "average"]

BOUNDS = (0.05, 20.0)
GRID = np.linspace(np.log(BOUNDS[0]), np.log(BOUNDS[1]), 13)  # the middle is T = 1


@dataclasses.dataclass(frozen=True)
class Temperature(Recalibration):
    r"""Temperature scaling of class probabilities (Guo et al. 2017).

    Where draws disagree their average is vague however sure each of them is, and a temperature of
    the draws barely helps; ``of="average"`` tempers the average (Rahaman and Thiery 2021).

    Args:
        value: T; above 1 the predictive was too sure, below 1 not sure enough.
        n: held-out rows that it was found on.
        before: their mean negative log likelihood at T = 1.
        after: and at T, which is never higher.
        of: what is raised to 1/T: the probabilities of the ``"draws"``, or their ``"average"``.

    Example:
        Probabilities that are too sure by a factor of 3, found and mended:

        >>> import numpy as np
        >>> import posterax as px
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(4000, 3))
        >>> y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
        >>> p = np.exp(3 * logits) / np.exp(3 * logits).sum(1, keepdims=True)
        >>> temperature = px.recalibrate.Temperature.fit(p, y)
        >>> round(temperature.value)
        3
        >>> temperature(p).shape
        (4000, 3)

    Reference:
        Guo, Pleiss, Sun and Weinberger, *On calibration of modern neural networks*, ICML 2017;
        Rahaman and Thiery, *Uncertainty quantification and deep ensembles*, NeurIPS 2021.
    """

    value: float
    n: int
    before: float
    after: float
    of: Of = "draws"

    def __post_init__(self) -> None:
        above_zero("value", self.value)
        whole_number("n", self.n)
        one_of("of", self.of, get_args(Of))

    def __repr__(self) -> str:
        change = f"NLL {self.before:.4g} → {self.after:.4g}"
        of = " of the average" if self.of == "average" else ""
        return f"Temperature({self.value:.4g}{of}, from {self.n} rows: {change})"

    @classmethod
    def fit(cls, predictive: Any, y: Any, *, of: Of = "draws") -> "Temperature":
        """The temperature between 0.05 and 20 at which held-out labels are most probable.

        Averages of several draws can have more than one minimum: a grid finds the lowest, and a
        bounded search goes on from there. About 30 passes over the held-out data.

        Args:
            predictive: of held-out inputs, or class probabilities (N, K).
            y: their labels.
            of: temper each of the ``"draws"``, which gives a predictive with all its parts, or
                their ``"average"``, which gives class probabilities (N, K).
        """
        refuse_kind(
            predictive, ("classification",), "Temperature", "px.recalibrate.Spread or Isotonic"
        )
        one_of("of", of, get_args(Of))
        if of == "average" or not hasattr(predictive, "tempered"):
            predictive = _Plain(probabilities(predictive))
            y = class_labels(y, predictive.p)
        found: dict[float, float] = {}

        def loss(log_t: float) -> float:
            log_prob = np.asarray(predictive.tempered(np.exp(log_t)).log_prob(y), np.float64)
            found[float(log_t)] = nll = -float(np.mean(log_prob))
            return nll if np.isfinite(nll) else 1e30  # a search cannot go on from infinity

        lowest = int(np.argmin([loss(log_t) for log_t in GRID]))
        around = GRID[[max(lowest - 1, 0), min(lowest + 1, len(GRID) - 1)]]
        minimize_scalar(loss, bounds=tuple(around), method="bounded", options={"xatol": 1e-3})
        best = min(found, key=lambda t: (found[t], abs(t)))
        if not np.isfinite(found[best]):
            raise ValueError(
                "y holds labels of probability 0, which they keep at every temperature: the "
                "predictive rules out what happened"
            )
        if abs(best) > GRID[-1] - 0.01:
            warnings.warn(
                f"the temperature stands at its bound, {np.exp(best):.3g}: "
                + ("almost every held-out label is the most probable one" if best < 0 else
                   "the probabilities say nothing about the held-out labels")
                + "; more held-out rows would tell more", stacklevel=2,
            )  # fmt: skip
        middle = found[float(GRID[len(GRID) // 2])]
        return cls(float(np.exp(best)), len(np.asarray(y)), middle, found[best], of)

    def __call__(self, predictive: Any) -> Any:
        """The predictive at this temperature; class probabilities where the average is tempered."""
        refuse_kind(
            predictive, ("classification",), "Temperature", "px.recalibrate.Spread or Isotonic"
        )
        if self.of == "draws" and hasattr(predictive, "tempered"):
            return predictive.tempered(self.value)
        return np.exp(_Plain(probabilities(predictive)).tempered(self.value).log_p)


class _Plain:
    """Class probabilities without a posterior behind them: one draw."""

    def __init__(self, p: np.ndarray, temperature: float = 1.0):
        self.p = p
        with np.errstate(divide="ignore"):
            scaled = np.log(p) / temperature
        self.log_p = scaled - np.logaddexp.reduce(scaled, axis=1, keepdims=True)

    def tempered(self, temperature: float) -> "_Plain":
        return _Plain(self.p, temperature)

    def log_prob(self, y: np.ndarray) -> np.ndarray:
        return self.log_p[np.arange(len(y)), y]
