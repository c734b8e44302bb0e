r"""Integrals over one dimension, for a batch of densities at once.

A double exponential change of variables x(t) (Takahasi and Mori 1974) turns the support into a
finite range of t and takes the sting out of heavy tails and singular ends; there Gauss–Legendre
panels are halved until a panel and its halves agree. Draws of the distributions say which panels to
start from, so that no mode is missed, be they far apart or of very different widths.

``scipy.integrate`` has nothing for a batch: ``cubature`` evaluates one panel at a time (100 times
slower, and short of digits where a gamma density is infinite at 0), and ``tanhsinh`` refines all
panels of all elements as far as the hardest needs (10 times slower, and as much more memory).
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
    def ends(self) -> tuple[bool, bool]:
        """Whether x is bounded below, and above."""
        return bool(np.all(np.isfinite(self.low))), bool(np.all(np.isfinite(self.high)))

    def x(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """x(t), and log dx/dt."""
        u, log_du = np.pi * np.sinh(t), np.log(np.pi * np.cosh(t))
        match self.ends:
            case False, False:
                x = self.centre + self.scale * np.sinh(u)
                log_slope = np.log(self.scale) + np.logaddexp(u, -u) - np.log(2)
            case True, False:
                x, log_slope = self.low + self.scale * np.exp(u), np.log(self.scale) + u
            case False, True:
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
        match self.ends:
            case False, False:
                u = np.arcsinh((x - self.centre) / self.scale)
            case True, False:
                u = np.log(below / self.scale)
            case False, True:
                u = -np.log(above / self.scale)
            case _:
                u = np.log(below) - np.log(above)
        return np.clip(np.arcsinh(u / np.pi), -REACH, REACH)


def integrate(
    f: Callable[[np.ndarray], np.ndarray], edges: np.ndarray, rounds: int = ROUNDS
) -> tuple[np.ndarray, np.ndarray]:
    r"""∫ f between the first and last of ``edges`` (panels + 1, …), and an estimate of its error.

    ``f`` takes points (n, …) and returns several integrands (k, n, …); the result is (k, …). A
    panel is halved for all of the batch as long as one of its integrals has not converged, at most
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
    coarse = panels(low, high)
    value = error = unsure = np.zeros_like(coarse[:, 0])
    for _ in range(rounds):
        middle = 0.5 * (low + high)
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
        halves = panels(low, high)
        fine = np.add(*np.split(halves, 2, axis=1))
        gap = np.abs(fine - coarse)
        enough = TOLERANCE * (1 + np.abs(value + fine.sum(1)))
        done = np.all(gap <= enough[:, None], axis=(0, *range(2, gap.ndim)))
        value, error = value + fine[:, done].sum(1), error + gap[:, done].sum(1)
        unsure, rest = gap[:, ~done].sum(1), np.tile(~done, 2)
        low, high, coarse = low[rest], high[rest], halves[:, rest]
        if not 0 < len(low) <= MOST_PANELS:
            break
    return value + coarse.sum(1), error + unsure
