r"""Weights of models by what each said of rows that it had not seen.

    maximise over v:  Σ_i weight_i · log Σ_c v_c p_c(y_i) + a Σ_c log v_c

by expectation and maximisation: v_c ← Σ_i weight_i r_ic + a, normalised, with the share r_ic that
model c has of row i. The second term, a Dirichlet prior, keeps a model of equal merit from being
lost to another by chance.

Reference: Yao, Vehtari, Simpson and Gelman, *Using stacking to average Bayesian predictive
distributions*, Bayesian Analysis 2018.
"""

import numpy as np

ROUNDS = 1000
PRIOR = 0.01  # a, in shares of all rows
LEAST = 0.02  # a weight below which a model is left out


def stack(log_p: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Weights of models, from log p_c(y_i) of shape (models, rows).

    Example:
        >>> import numpy as np
        >>> from posterax.tables.stacking import stack
        >>> good, bad = np.zeros(50), np.full(50, -3.0)
        >>> stack(np.stack([good, bad]), np.ones(50)).round(2).tolist()
        [1.0, 0.0]
    """
    log_p = np.where(np.isfinite(log_p), log_p, -1e4)
    share = weight / weight.sum()
    p = np.exp(log_p - log_p.max(axis=0))
    v = _climb(p, share)
    kept = v >= LEAST
    if not kept.all():  # without those of next to no weight
        left = _climb(p[kept], share) if kept.any() else np.ones(1)
        v = np.zeros(len(v))
        v[kept if kept.any() else [int(np.argmax(log_p @ share))]] = left
        v = np.where(v >= LEAST, v, 0)
    return v / v.sum()


def _climb(p: np.ndarray, share: np.ndarray) -> np.ndarray:
    v = np.full(len(p), 1 / len(p))
    for _ in range(ROUNDS):
        mixed = v[:, None] * p
        new = (mixed / mixed.sum(axis=0)) @ share + PRIOR / len(p)
        new /= new.sum()
        if np.max(np.abs(new - v)) < 1e-6:
            return new
        v = new
    return v
