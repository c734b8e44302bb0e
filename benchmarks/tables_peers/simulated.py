"""Three simulated tables whose distribution of y given x is known."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

ROWS, TRAIN, COLUMNS = 1500, 1000, 10  # of each split, which has rows of its own


def friedman(x: np.ndarray) -> Any:
    """Friedman's first function with noise of deviation 1; five of ten columns do nothing."""
    wave = 10 * np.sin(np.pi * x[:, 0] * x[:, 1])
    return stats.norm(wave + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4], 1.0)


def skewed(x: np.ndarray) -> Any:
    """A log-normal: positive, skewed, and its spread depends on x."""
    log_mean = 1 + np.sin(2 * np.pi * x[:, 0]) + x[:, 1] * x[:, 2]
    return stats.lognorm(0.2 + 0.6 * x[:, 3], scale=np.exp(log_mean))


def counts(x: np.ndarray) -> Any:
    """Poisson counts with a mean between about 1 and 30."""
    return stats.poisson(np.exp(0.3 + 2 * np.sin(np.pi * x[:, 0]) + x[:, 1] - 0.5 * x[:, 2]))


TRUTHS: dict[str, Callable[[np.ndarray], Any]] = {
    "Friedman": friedman,
    "skewed": skewed,
    "counts": counts,
}


def draw(
    name: str, splits: int
) -> tuple[np.ndarray, np.ndarray, list[tuple[np.ndarray, np.ndarray]]]:
    """Inputs, targets, and splits that share no row."""
    xs, ys = [], []
    for seed in range(splits):
        rng = np.random.default_rng([seed, list(TRUTHS).index(name)])
        x = rng.uniform(size=(ROWS, COLUMNS))
        xs.append(x)
        ys.append(np.asarray(TRUTHS[name](x).rvs(random_state=rng), float))
    rows = np.arange(splits * ROWS).reshape(splits, ROWS)
    return np.vstack(xs), np.concatenate(ys), [(r[:TRAIN], r[TRAIN:]) for r in rows]
