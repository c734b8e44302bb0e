r"""Integrals over one dimension, for a batch of densities at once.

A double exponential change of variables x(t) (Takahasi and Mori 1974) turns the whole support into
a finite range of t and takes the sting out of heavy tails and singular ends; there Gauss–Legendre
panels are halved until whole and halves agree. Which panels to start from is told by draws of the
distributions, so that modes far apart or of very different widths are found.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
TOLERANCE = 1e-12  # of a panel, relative to 1 + |integral|
ROUNDS, MOST_PANELS = 60, 4096
REACH = 5.4  # of t; x reaches 1e150 scales away, and its square is still a number


class Line(NamedTuple):
    """The way from t in (−REACH, REACH) to x in (low, high), elementwise over a batch."""

    low: np.ndarray
    high: np.ndarray
    centre: np.ndarray
    scale: np.ndarray

    @classmethod
    def through(cls, low: np.ndarray, high: np.ndarray, draws: np.ndarray) -> "Line | None":
        """From bounds and draws (n, …); None where some of a batch are bounded and others not."""
        finite = np.isfinite(low), np.isfinite(high)
        if any(np.any(f) and not np.all(f) for f in finite):
            return None
        centre = np.median(draws, 0)
        if np.all(finite[0]):
            scale = centre - low
        elif np.all(finite[1]):
            scale = high - centre
        else:
            scale = np.subtract(*np.percentile(draws, [75, 25], axis=0))
        return cls(low, high, centre, np.where(scale > 0, scale, 1.0))

    @property
    def kind(self) -> str:
        below, above = np.all(np.isfinite(self.low)), np.all(np.isfinite(self.high))
        if below:
            return "between" if above else "above"
        return "below" if above else "real"

    def x(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """x(t), and log dx/dt."""
        u, log_du = np.pi * np.sinh(t), np.log(np.pi * np.cosh(t))
        match self.kind:
            case "real":
                x = self.centre + self.scale * np.sinh(u)
                log_slope = np.log(self.scale) + np.logaddexp(u, -u) - np.log(2)
            case "above":
                x, log_slope = self.low + self.scale * np.exp(u), np.log(self.scale) + u
            case "below":
                x, log_slope = self.high - self.scale * np.exp(-u), np.log(self.scale) - u
            case _:
                width = self.high - self.low
                # from the nearer end, where a few more digits are to be had
                near = np.exp(-np.logaddexp(0, np.abs(u)))
                x = np.where(u < 0, self.low + width * near, self.high - width * near)
                log_slope = np.log(width) - np.logaddexp(0, u) - np.logaddexp(0, -u)
        return x, log_slope + log_du

    def t(self, x: np.ndarray) -> np.ndarray:
        """The t of x, clipped to the range."""
        tiny = np.finfo(float).tiny
        below, above = np.maximum(x - self.low, tiny), np.maximum(self.high - x, tiny)
        match self.kind:
            case "real":
                u = np.arcsinh((x - self.centre) / self.scale)
            case "above":
                u = np.log(below / self.scale)
            case "below":
                u = -np.log(above / self.scale)
            case _:
                u = np.log(below) - np.log(above)
        return np.clip(np.arcsinh(u / np.pi), -REACH, REACH)


def integrate(
    f: Callable[[np.ndarray], np.ndarray], edges: np.ndarray, rounds: int = ROUNDS
) -> tuple[np.ndarray, np.ndarray]:
    r"""∫ f between the first and last of ``edges`` (panels + 1, …), and an estimate of its error.

    ``f`` takes points (n, …) and returns several integrands (k, n, …); the result is (k, …). A
    panel is halved for the whole batch as long as one of its integrals has not converged, at most
    ``rounds`` times.

    Example:
        >>> import numpy as np
        >>> from posterax.information.quadrature import integrate
        >>> value, error = integrate(lambda t: np.abs(t)[None], np.array([-1.0, 0.3, 2.0]))
        >>> round(float(value[0]), 9), bool(error[0] < 1e-9)
        (2.5, True)
    """

    def panels(low: np.ndarray, high: np.ndarray) -> np.ndarray:
        middle, half = 0.5 * (low + high), 0.5 * (high - low)
        t = middle[:, None] + half[:, None] * NODES.reshape(-1, *[1] * (low.ndim - 1))
        values = f(t.reshape(-1, *low.shape[1:]))
        values = values.reshape(len(values), *t.shape)
        return np.tensordot(WEIGHTS, np.moveaxis(values, 2, 0), 1) * half

    low, high = edges[:-1], edges[1:]
    whole = panels(low, high)
    value, error = np.zeros_like(whole[:, 0]), np.zeros_like(whole[:, 0])
    gap = np.zeros_like(whole)
    for _ in range(rounds):
        middle = 0.5 * (low + high)
        left, right = np.split(
            panels(np.concatenate([low, middle]), np.concatenate([middle, high])), 2, axis=1
        )
        better = left + right
        gap = np.abs(better - whole)
        enough = TOLERANCE * (1 + np.abs(value + better.sum(1)))
        done = np.all(gap <= enough[:, None], axis=(0, *range(2, gap.ndim)))
        value, error = value + better[:, done].sum(1), error + gap[:, done].sum(1)
        low, middle, high = low[~done], middle[~done], high[~done]
        gap = np.concatenate([gap[:, ~done]] * 2, axis=1) / 2
        whole = np.concatenate([left[:, ~done], right[:, ~done]], axis=1)
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
        if not 0 < len(low) <= MOST_PANELS:
            break
    return value + whole.sum(1), error + gap.sum(1)
