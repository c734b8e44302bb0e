r"""Weights of models by what each said of rows that it had not seen.

    maximise over v:  Σ_i weight_i · log Σ_c v_c p_c(y_i) + a Σ_c log v_c

by expectation and maximisation: v_c ← Σ_i weight_i r_ic + a, normalised, with the share r_ic that
model c has of row i. The second term, a Dirichlet prior, keeps chance from deciding between models
of nearly equal merit.

Reference: Yao, Vehtari, Simpson and Gelman, *Using stacking to average Bayesian predictive
distributions*, Bayesian Analysis 2018.
"""

import numpy as np

ROUNDS = 1000
PRIOR = 0.01  # a, in shares of all rows
NO_LOSS = 0.003  # nats


def stack(log_p: np.ndarray, weight: np.ndarray, no_loss: float = NO_LOSS) -> np.ndarray:
    """Weights of models, from log p_c(y_i) of shape (models, rows).

    Predictions take as long as all models of some weight together: one without which the rest is
    as good has none.

    Args:
        log_p: of each model and row.
        weight: how often each row counts.
        no_loss: a model that brings less in the mean, and less than chance does, is left out.

    Example:
        >>> import numpy as np
        >>> from posterax.tables.stacking import stack
        >>> good, bad = np.zeros(50), np.full(50, -3.0)
        >>> stack(np.stack([good, bad]), np.ones(50)).round(2).tolist()
        [1.0, 0.0]
    """
    log_p = np.where(np.isfinite(log_p), log_p, -1e4)
    share = weight / weight.sum()
    kept = np.arange(len(log_p))
    v, known = _climb(log_p, share)
    while len(kept) > 1:
        without = [_climb(log_p[np.delete(kept, i)], share) for i in range(len(kept))]
        losses = [known - log_mixed for _, log_mixed in without]
        means = np.array([loss @ share for loss in losses])
        least = int(np.argmin(means))
        chance = np.sqrt(np.square(losses[least] - means[least]) @ share * np.sum(share**2))
        if means[least] > min(no_loss, chance):
            break
        kept, (v, known) = np.delete(kept, least), without[least]
    whole = np.zeros(len(log_p))
    whole[kept] = v
    return whole


def _climb(log_p: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The weights, and the log probability of each row by the mixture."""
    most = log_p.max(axis=0)
    p = np.exp(log_p - most)
    v = np.full(len(p), 1 / len(p))
    for _ in range(ROUNDS):
        mixed = v[:, None] * p
        new = (mixed / mixed.sum(axis=0)) @ share + PRIOR / len(p)
        new /= new.sum()
        near = np.max(np.abs(new - v)) < 1e-6
        v = new
        if near:
            break
    return v, np.log(v @ p) + most
