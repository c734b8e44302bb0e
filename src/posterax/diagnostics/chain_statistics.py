"""Estimators for chains, by arviz-stats, on arrays with axes (chain, draw, …).

Around arviz-stats only what makes its answers safe: numbers that never change, or are not finite,
or come from one chain, get a defined answer instead of NaN and a warning.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from .._util.admit import admit, admit_float64

FEWEST = 4  # draws of a chain below which its autocorrelation cannot be told


class Convergence(NamedTuple):
    """One value for each quantity; NaN for those that are the same in every draw."""

    rhat: np.ndarray
    bulk: np.ndarray
    tail: np.ndarray


def mcse(values: ArrayLike) -> np.ndarray:
    r"""The standard error of the mean over chains and draws, autocorrelation counted.

    √(Var[F] / ESS) with the effective sample size of the mean (Vehtari et al., Rank-normalization,
    folding, and localization: an improved R̂, Bayesian Analysis 2021). Chains of fewer than four
    draws say nothing about autocorrelation: then the spread of their means counts, and for one
    such chain the error of independent draws.

    Example:
        >>> import numpy as np
        >>> from posterax.diagnostics.chain_statistics import mcse
        >>> draws = np.random.default_rng(0).normal(size=(4, 250))
        >>> print(mcse(draws).round(2))  # 1 / √1000
        0.03
    """
    values = admit_float64(values, "values")
    chains, draws = values.shape[:2]
    if draws < FEWEST:
        means = values.mean(1) if chains > 1 else values[0]
        if len(means) == 1:  # one number has no spread, which is not to say that it is exact
            return np.full(values.shape[2:], np.nan)
        return means.std(0, ddof=1) / np.sqrt(len(means))
    from arviz_stats.base import array_stats

    flat = values.reshape(chains, draws, -1)
    finite = np.isfinite(flat).all((0, 1))
    live = finite & (np.ptp(flat, axis=(0, 1)) > 0)
    error = np.where(finite, 0.0, np.nan)
    if live.any():
        # arviz-stats takes what spreads by less than 1e-15 for a constant
        spread = flat[..., live].std((0, 1))
        scaled = (flat[..., live] - flat[..., live].mean((0, 1))) / spread
        error[live] = spread * array_stats.mcse(scaled, chain_axis=0, draw_axis=1)
    return error.reshape(values.shape[2:])


def convergence(values: ArrayLike) -> Convergence:
    """Rank-normalised split R-hat, bulk and tail ESS of every quantity, (chain, draw, quantity).

    The tails are those of Vehtari et al. (2021), below the 5 % and above the 95 % quantile. R-hat
    of a single chain compares its quarters. What is not finite somewhere has R-hat ∞ and
    no effective draws.

    Example:
        >>> import numpy as np
        >>> from posterax.diagnostics.chain_statistics import convergence
        >>> draws = np.random.default_rng(0).normal(size=(4, 250, 2))
        >>> draws[0, :, 1] += 3  # one chain is elsewhere
        >>> (convergence(draws).rhat > 1.01).tolist()
        [False, True]
    """
    from arviz_stats.base import array_stats

    values = np.asarray(admit(values, "values"))
    rounding = 8 * np.finfo(values.dtype if values.dtype.kind == "f" else float).eps
    values = values.astype(np.float64)
    chains, draws, quantities = values.shape
    with np.errstate(invalid="ignore"):
        largest = np.abs(values).max((0, 1), initial=0.0)
        still = np.ptp(values, axis=(0, 1)) <= rounding * largest
    finite = np.isfinite(values).all((0, 1))
    live = finite & ~still
    rhat, bulk, tail = (np.full(quantities, np.nan) for _ in range(3))
    rhat[~finite], bulk[~finite], tail[~finite] = np.inf, 0.0, 0.0
    if live.any():
        axes = {"chain_axis": 0, "draw_axis": 1}
        moving = values[..., live]
        halves = moving if chains > 1 else moving[0, : draws // 2 * 2].reshape(2, draws // 2, -1)
        # chains that stay where they are, each elsewhere: R-hat is infinite, not an error
        with np.errstate(divide="ignore", invalid="ignore"):
            rhat[live] = array_stats.rhat(halves, **axes)
            bulk[live] = array_stats.ess(moving, **axes)
            tail[live] = array_stats.ess(moving, method="tail", prob=(0.05, 0.95), **axes)
    return Convergence(rhat, bulk, tail)


def energy_fractions(energy: ArrayLike) -> np.ndarray:
    """E-BFMI of each chain: how much of the energy's spread one transition explores.

    Betancourt, Diagnosing Suboptimal Cotangent Disintegrations in Hamiltonian Monte Carlo, 2016.
    A chain whose energy never changes has 0.

    Example:
        >>> import numpy as np
        >>> from posterax.diagnostics.chain_statistics import energy_fractions
        >>> energy_fractions(np.random.default_rng(0).normal(size=(2, 500))).round(0).tolist()
        [2.0, 2.0]
    """
    from arviz_stats.base import array_stats

    energy = admit_float64(energy, "energy")
    fractions = np.zeros(len(energy))
    live = np.isfinite(energy).all(1) & (np.ptp(energy, axis=1) > 0)
    if live.any():
        fractions[live] = array_stats.bfmi(energy[live])
    return fractions
