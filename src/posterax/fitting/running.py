"""Predictions gathered while a sampler runs, so that no draw has to be kept."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from ..predictive.stream import Joined, Moments

if TYPE_CHECKING:
    from ..posteriors import Draws
    from .callbacks import Event


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
        self.count = 0
        self._joined: Joined | None = None

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
        if self._joined is None:
            self._joined = Joined(predictive.kind == "classification")
        new = int(np.prod(posterior.shape))
        self._joined.add(Moments(*(getattr(predictive, name) for name in Moments._fields)), new)
        self.count += new

    def __repr__(self) -> str:
        return f"RunningPredictive({self.count} draws)"

    @property
    def mean(self) -> np.ndarray:
        """E[y], or the class probabilities."""
        return self._told().mean

    @property
    def variance(self) -> np.ndarray:
        """Var[y]; for classes the variance of their probabilities over the draws."""
        return self._told().variance

    @property
    def epistemic(self) -> np.ndarray:
        """Var_w(E[y | w]), or the mutual information in nats."""
        return self._told().epistemic

    @property
    def aleatoric(self) -> np.ndarray:
        """E_w(Var[y | w]), or the expected entropy in nats."""
        return self._told().aleatoric

    @property
    def total(self) -> np.ndarray:
        """Epistemic + aleatoric: Var[y], or the entropy of the mean probabilities."""
        return self._told().total

    @property
    def std(self) -> np.ndarray:
        """The root of ``variance``, in the units of y."""
        return np.sqrt(self.variance)

    def _told(self) -> Moments:
        if self._joined is None:
            raise RuntimeError(
                "no draws yet: pass this callback to px.fit(…, callbacks=[running]) with a method "
                "that draws, such as px.NUTS"
            )
        return self._joined.moments()


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
