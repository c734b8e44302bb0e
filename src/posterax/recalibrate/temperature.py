r"""Temperature scaling: one number that makes class probabilities less, or more, sure.

    p_T(y | x) = E_w[ softmax(f(x, w) / T)_y ],   T = argmin −Σₙ log p_T(yₙ | xₙ)

over held-out data. Every draw's probabilities are raised to 1/T before they are averaged, so T = 1
is the predictive as it was. Or the average itself is: p_T ∝ (E_w softmax(f)_y)^(1/T).
"""

import dataclasses
import warnings
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from .._util.checks import above_zero, one_of, whole_number
from ..metrics.inputs import Forecast, class_labels
from .base import Recalibration, probabilities

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
        n: held-out rows that it was fitted on.
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

    kinds, instead = ("classification",), "px.recalibrate.Spread or Isotonic"

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
    def fit(cls, predictive: Forecast, y: ArrayLike, *, of: Of = "draws") -> "Temperature":
        """The temperature between 0.05 and 20 at which held-out labels are most probable.

        Averages of several draws can have more than one minimum: a grid finds the lowest, and a
        bounded search goes on from there. About 30 passes over the held-out data.

        Args:
            predictive: of held-out inputs, or class probabilities (N, K).
            y: their labels.
            of: temper each of the ``"draws"``, which gives a predictive with all its parts, or
                their ``"average"``, which gives class probabilities (N, K).
        """
        cls.check_kind(predictive)
        one_of("of", of, get_args(Of))
        by_draw = of == "draws" and hasattr(predictive, "tempered")
        if not by_draw:
            p = probabilities(predictive)
            own = np.arange(len(p)), class_labels(y, p)
        losses: dict[float, float] = {}

        def loss(log_t: float) -> float:
            t = np.exp(log_t)
            log_prob = (
                predictive.tempered(t).log_prob(y)  # type: ignore[union-attr]
                if by_draw
                else _tempered(p, t)[own]
            )
            losses[float(log_t)] = nll = -float(np.mean(np.asarray(log_prob, np.float64)))
            return nll if np.isfinite(nll) else 1e30  # a search cannot go on from infinity

        lowest = int(np.argmin([loss(log_t) for log_t in GRID]))
        around = GRID[[max(lowest - 1, 0), min(lowest + 1, len(GRID) - 1)]]
        minimize_scalar(loss, bounds=tuple(around), method="bounded", options={"xatol": 1e-3})
        best = min(losses, key=lambda t: (losses[t], abs(t)))
        if not np.isfinite(losses[best]):
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
        before = losses[float(GRID[len(GRID) // 2])]
        return cls(float(np.exp(best)), len(np.asarray(y)), before, losses[best], of)

    def __call__(self, predictive: Forecast) -> Any:
        """The predictive at this temperature; class probabilities where the average is tempered."""
        self.check_kind(predictive)
        if self.of == "draws" and hasattr(predictive, "tempered"):
            return predictive.tempered(self.value)
        return np.exp(_tempered(probabilities(predictive), self.value))


def _tempered(p: np.ndarray, temperature: float) -> np.ndarray:
    """Logarithms of class probabilities (N, K) at a temperature."""
    with np.errstate(divide="ignore"):
        scaled = np.log(p) / temperature
    return scaled - np.logaddexp.reduce(scaled, axis=1, keepdims=True)
