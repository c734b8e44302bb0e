r"""Predictions gathered while a sampler runs, so that no draw has to be kept.

Each chunk of n′ new draws has the moments m′, v′ of the predictions over its draws; they join
those of the n before by the formula of Chan, Golub and LeVeque (Updating Formulae and a Pairwise
Algorithm for Computing Sample Variances, COMPSTAT 1982):

    m ← m + (m′ − m) n′/(n + n′),   n v ← n v + n′ v′ + (m′ − m)² n n′/(n + n′)
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from .callbacks import Event
    from .posteriors import Draws


class RunningPredictive:
    """A callback that holds the predictive distribution of all draws so far at inputs ``x``.

    It has ``mean``, ``variance``, ``epistemic``, ``aleatoric``, ``total`` and ``std`` with the
    shapes and meanings of ``posterior.predict(x)``, in float64, and ``count``, the number of draws
    they are over. Quantiles and densities need the draws themselves.

    Args:
        x: inputs, in the form of the training inputs.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 16)[:, None].astype("float32")
        >>> model = px.Model(
        ...     px.networks.MLP(1, 1, (), key=0),
        ...     px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.3),
        ... )
        >>> running = px.callbacks.RunningPredictive(x)
        >>> method = px.NUTS(warmup=50)
        >>> posterior = px.fit(
        ...     model, (x, x[:, 0]), method, steps=40, callbacks=[running], key=0
        ... )
        >>> running.count
        160
        >>> bool(np.allclose(running.mean, posterior.predict(x).mean, atol=1e-4))
        True
    """

    def __init__(self, x: Any):
        self._x = x
        self._kind = ""
        self.count = 0
        self._mean: Any = 0.0
        self._squares: Any = 0.0  # n times the variance of the means over draws
        self._aleatoric: Any = 0.0

    def __call__(self, event: "Event") -> None:
        posterior = getattr(event, "posterior", None)
        if posterior is not None:
            self.add(posterior)

    def add(self, posterior: "Draws") -> None:
        """Count the draws of a posterior in."""
        if posterior.log_weights is not None:
            raise ValueError(
                "RunningPredictive is for chains, whose draws weigh the same: weighted draws are "
                "normalised at the end only; use posterior.predict(x) after the fit"
            )
        predictive = _padded(posterior).predict(self._x)
        self._kind = predictive.kind
        regression = self._kind != "classification"
        spread = predictive.epistemic if regression else predictive.variance
        new, before = int(np.prod(posterior.shape)), self.count
        self.count = before + new
        share = new / self.count
        change = np.asarray(predictive.mean, np.float64) - self._mean
        self._mean = self._mean + share * change
        self._squares = self._squares + new * spread + np.square(change) * before * share
        self._aleatoric = (1 - share) * self._aleatoric + share * predictive.aleatoric

    def __repr__(self) -> str:
        return f"RunningPredictive({self.count} draws)"

    @property
    def mean(self) -> np.ndarray:
        """E[y], or the class probabilities."""
        return self._told(self._mean)

    @property
    def variance(self) -> np.ndarray:
        """Var[y]; for classes the variance of their probabilities over the draws."""
        spread = self._told(self._squares) / self.count
        return spread if self._kind == "classification" else spread + self._aleatoric

    @property
    def epistemic(self) -> np.ndarray:
        """Var_w(E[y | w]), or the mutual information in nats."""
        if self._kind == "classification":
            return self.total - self._aleatoric
        return self._told(self._squares) / self.count

    @property
    def aleatoric(self) -> np.ndarray:
        """E_w(Var[y | w]), or the expected entropy in nats."""
        return self._told(self._aleatoric)

    @property
    def total(self) -> np.ndarray:
        """Epistemic + aleatoric: Var[y], or the entropy of the mean probabilities."""
        mean = self._told(self._mean)
        if self._kind != "classification":
            return self.epistemic + self._aleatoric
        entropy = -np.sum(mean * np.log(np.where(mean > 0, mean, 1.0)), axis=-1)
        # rounding must not make information negative
        return np.maximum(entropy, self._aleatoric)

    @property
    def std(self) -> np.ndarray:
        """The root of ``variance``, in the units of y."""
        return np.sqrt(self.variance)

    def _told(self, value: Any) -> np.ndarray:
        if self.count == 0:
            raise RuntimeError(
                "no draws yet: pass this callback to px.fit(…, callbacks=[running]) with a method "
                "that draws, such as px.NUTS"
            )
        return value


def _padded(posterior: "Draws") -> "Draws":
    """With draws repeated at no weight to a power of two, so that few programs serve any chunk."""
    chains, draws = posterior.shape
    missing = (1 << (draws - 1).bit_length()) - draws

    def pad(a: Any) -> jax.Array:
        return jnp.pad(a, [(0, 0), (0, missing)] + [(0, 0)] * (jnp.ndim(a) - 2), mode="edge")

    weights = np.full((chains, draws + missing), -np.inf)
    weights[:, :draws] = 0.0
    state = jax.tree.map(pad, posterior.state) if posterior.own_state else posterior.state
    return dataclasses.replace(
        posterior, draws=jax.tree.map(pad, posterior.draws), state=state, stats=None,
        log_weights=jnp.asarray(weights),
    )  # fmt: skip
