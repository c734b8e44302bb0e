r"""Batches that are informative together: the best ten alone may be ten of the same kind.

Both rules are greedy: the next input is the one whose label adds most to what the labels of those
before it tell, which is within 1 − 1/e of the best batch, since such gains only shrink as the batch
grows (Nemhauser, Wolsey and Fisher 1978). For the same reason an input can never add more than it
did when it was last looked at, so that most need not be looked at again (Minoux 1978).
"""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax, xlogy

from .._util.admit import admit_float64
from .._util.checks import whole_number
from .._util.keys import KeyLike, as_key

CHUNK = 64  # inputs that are looked at together
CELLS = 2**23  # of a table of joint probabilities that are held at once


def batch_bald(
    probabilities: ArrayLike,
    n: int,
    *,
    weights: ArrayLike | None = None,
    configurations: int = 10_000,
    key: KeyLike = 0,
) -> tuple[np.ndarray, np.ndarray]:
    r"""The batch whose labels together tell most about the weights, found greedily.

        I[y₁ … y_b; w] = H[E_w Π_j p(y_j | w)] − Σ_j E_w H[p(y_j | w)]
                       = Σ_j H[y_j | y₁ … y_{j−1}] − E_w H[p(y_j | w)]

    An entropy given the labels before is an average over all K^(j−1) configurations of these while
    they are few, and over draws of them after that.

    Args:
        probabilities: of the classes for each posterior sample and input, (samples, N, K), as
            ``predictive.conditional_means()`` has them.
        n: inputs to choose.
        weights: of the samples, summing to 1 (default: all the same).
        configurations: up to so many the sum is exact; beyond, so many are drawn.
        key: of the draws.

    Returns:
        The numbers of the inputs in the order they were chosen, and the information of the first,
        the first two, … of them, in nats.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> p = np.array([0.1, 0.9, 0.2, 0.8]), np.array([0.2, 0.2, 0.8, 0.8])  # of 4 samples
        >>> first = np.stack([p[0], p[0], p[1]], axis=1)  # an input, the same again, another
        >>> chosen, information = px.active.batch_bald(np.stack([first, 1 - first], -1), 2)
        >>> chosen.tolist()
        [0, 2]

    Reference:
        Kirsch, van Amersfoort and Gal, BatchBALD: Efficient and Diverse Batch Acquisition for Deep
        Bayesian Active Learning, NeurIPS 2019.
    """
    p = admit_float64(probabilities, "probabilities").astype(np.float32)
    if p.ndim != 3:
        raise ValueError(
            f"probabilities must have shape (samples, N, K), got {p.shape}; for several labels an "
            "input use 'diverse'"
        )
    samples, size, classes = p.shape
    n, most = check_left(n, size), whole_number("configurations", configurations, least=classes)
    w = _weights(weights, samples)
    random = generator(key)
    own = np.einsum("s,snk->n", w, -xlogy(p, p), dtype=np.float64)  # E_w H[p]
    mean = np.tensordot(w, p, 1)
    bound = -xlogy(mean, mean).sum(-1) - own
    each = np.ascontiguousarray(p.transpose(1, 2, 0))  # (N, K, samples)
    # for every configuration of the labels chosen so far: how probable, and the weights of the
    # samples that are left by it, (configurations, samples)
    mass, left = np.ones(1), w[None]
    taken: list[int] = []
    gains: list[float] = []
    while len(taken) < n:
        best, gain = -1, -np.inf
        on_device = jnp.asarray(mass, jnp.float32), jnp.asarray(left, jnp.float32)
        order = np.argsort(-bound, kind="stable")
        order = order[~np.isin(order, taken)]
        for start in range(0, len(order), CHUNK):
            rows = order[start : start + CHUNK]
            if bound[rows[0]] <= gain:  # and so all after it
                break
            chunk = each[np.resize(rows, CHUNK)]
            entropies = np.asarray(_conditional_entropies(*on_device, chunk), np.float64)
            bound[rows] = entropies[: len(rows)] - own[rows]
            if bound[rows].max() > gain:
                best, gain = int(rows[bound[rows].argmax()]), float(bound[rows].max())
        taken.append(best)
        gains.append(gain)
        if classes ** len(taken) <= most:
            joint = ((mass[:, None] * left)[:, None] * each[best]).reshape(-1, samples)
            mass = joint.sum(1)
            left = joint / np.where(mass > 0, mass, 1)[:, None]
        else:
            mass, left = np.full(most, 1 / most), _drawn(each[taken], w, most, random)
    return np.array(taken), np.cumsum(gains)


@jax.jit
def _conditional_entropies(mass: jax.Array, left: jax.Array, each: jax.Array) -> jax.Array:
    """H[y | y₁ … y_b] of each of a chunk of inputs, block of configurations by block."""
    rows = max(1, min(len(mass), CELLS // (each.shape[0] * each.shape[1])))
    blocks = -(-len(mass) // rows)
    pad = blocks * rows - len(mass)
    masses = jnp.pad(mass, (0, pad)).reshape(blocks, rows)
    weights = jnp.pad(left, ((0, pad), (0, 0))).reshape(blocks, rows, -1)

    def add(total: jax.Array, part: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        p = jnp.einsum("cs,iks->cik", part[1], each, precision="highest")
        return total - jnp.einsum("c,cik->i", part[0], jax.scipy.special.xlogy(p, p)), None

    return jax.lax.scan(add, jnp.zeros(len(each)), (masses, weights))[0]


def _drawn(picked: np.ndarray, w: np.ndarray, n: int, random: np.random.Generator) -> np.ndarray:
    """Weights of the samples after ``n`` configurations of the labels, drawn from E_w Π p.

    Draws come evenly from all samples, so that only the labels are left to chance; sums of
    logarithms, since the probability of all labels of a large batch underflows.
    """
    which = np.searchsorted(np.cumsum(w), (np.arange(n) + 0.5) / n * w.sum())
    which = np.minimum(which, len(w) - 1)
    with np.errstate(divide="ignore"):
        log_joint = np.tile(np.log(w), (n, 1))
        for each in picked.astype(np.float64):  # (K, samples)
            upper = np.cumsum(each[:, which], axis=0)
            label = np.sum(random.random(n) * upper[-1] >= upper, axis=0)
            log_joint += np.log(each[np.minimum(label, len(each) - 1)])
    return softmax(log_joint, axis=1)


def diverse(
    means: ArrayLike, noise: ArrayLike, n: int, *, weights: ArrayLike | None = None
) -> tuple[np.ndarray, np.ndarray]:
    r"""The batch of largest determinant: greedy in the information of a linear-Gaussian surrogate.

        ½ log |I + R^-½ Σ R^-½|,   Σ = Cov_w(E[y | w]) between all inputs of the batch

    For regression with Gaussian noise R this is I[y₁ … y_b; w] whenever E[y | w] is Gaussian over
    the posterior, exactly so for a linear model. Classes stand for themselves with R = diag p̄: a
    single input then scores ½ Σ_k Var_w p_k / p̄_k to first order, which is BALD to second order in
    the disagreement. It costs O(N · samples) a pick, however large the batch.

    Args:
        means: E[y | w] for each sample and input, (samples, N) or (samples, N, outputs), as
            ``predictive.conditional_means()`` has them.
        noise: the variance of y given w: one number, or of the shape of an element of ``means``,
            (N,) or (N, outputs).
        n: inputs to choose.
        weights: of the samples, summing to 1 (default: all the same).

    Returns:
        The chosen inputs, and their information, as [`batch_bald`][posterax.active.batch_bald].

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> slopes = np.random.default_rng(0).normal(size=(50, 2))
        >>> x = np.array([[3.0, 0.0], [2.9, 0.0], [0.0, 1.0]])
        >>> px.active.diverse(slopes @ x.T, 0.1, 2)[0].tolist()
        [0, 2]

    Reference:
        Krause, Singh and Guestrin, Near-Optimal Sensor Placements in Gaussian Processes, JMLR 2008.
    """
    f = admit_float64(means, "means")
    if f.ndim < 2:
        raise ValueError(f"means must have shape (samples, N, …), got {f.shape}")
    # differences between samples, before there are fewer digits
    f = (f - f[:1]).astype(np.float32).reshape(*f.shape[:2], -1)
    samples, size, outputs = f.shape
    n = check_left(n, size)
    variances = admit_float64(noise, "noise")
    if variances.shape[:1] == (size,):
        variances = variances.reshape(size, -1)
    try:
        variances = np.broadcast_to(variances, (size, outputs))
    except ValueError:
        raise ValueError(
            f"noise must be a number or of shape {np.shape(means)[1:]}, got {np.shape(noise)}"
        ) from None
    if not np.all(variances > 0):
        raise ValueError("noise must be above 0 everywhere")
    w = _weights(weights, samples)
    # rows: the features of an input, under which the weights are N(0, I) before its label
    features = np.ascontiguousarray(np.moveaxis(f, 0, -1))  # (N, outputs, samples)
    features -= (features @ w.astype(np.float32))[..., None]
    features *= np.sqrt(w).astype(np.float32)
    features /= np.sqrt(variances).astype(np.float32)[..., None]
    taken: list[int] = []
    information: list[float] = []
    for _ in range(n):
        gains = 0.5 * _log_det_plus_one(features)
        gains[taken] = -np.inf
        best = int(gains.argmax())
        taken.append(best)
        information.append(float(gains[best]))
        # the weights given its label, again as N(0, I): F ← F (I + fᵀ f)^-½
        _, sizes, directions = np.linalg.svd(features[best], full_matrices=False)
        shrink = 1 - 1 / np.sqrt(1 + np.square(sizes))
        features -= ((features @ directions.T) * shrink) @ directions
    return np.array(taken), np.cumsum(information)


def _log_det_plus_one(features: np.ndarray) -> np.ndarray:
    """log |I + F Fᵀ| of each input."""
    if features.shape[1] == 1:
        return np.log1p(np.sum(np.square(features), axis=(1, 2)))
    inner = features @ np.swapaxes(features, 1, 2)
    return np.linalg.slogdet(np.eye(features.shape[1]) + inner)[1]


def check_left(n: int, size: int) -> int:
    """A number of inputs, no more than are left."""
    if whole_number("n", n) > size:
        raise ValueError(f"n={n} is more than the pool has left, {size} inputs")
    return int(n)


def _weights(weights: ArrayLike | None, samples: int) -> np.ndarray:
    w = np.full(samples, 1 / samples) if weights is None else admit_float64(weights, "weights")
    if w.shape != (samples,):
        raise ValueError(f"weights must have shape ({samples},), one a sample, got {w.shape}")
    return w


def generator(key: KeyLike) -> np.random.Generator:
    """numpy's generator for a key: choosing a few of many rows happens on the host."""
    return np.random.default_rng(np.asarray(jax.random.key_data(as_key(key))).tolist())
