"""Calls of ``fit`` that differ in one thing, of which a result depends.

Each pair is the call that made a checkpoint, another call, and words of which the refusal must
have one: what differs.
"""

import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax

import posterax as px
from tests.attack.fits import Broken, StopAfter, X, Y, model

SIGMA = 0.3  # a global that a likelihood reads
OTHER_X = np.flip(X, 0).copy()


class Call(NamedTuple):
    """What ``fit`` is called with."""

    model: Any
    data: Any
    method: Any
    options: dict[str, Any]

    def fit(self, folder: Path | None, **more: Any) -> px.Posterior:
        """The posterior, saved in a folder as often as it can be."""
        from posterax.fitting import run

        run.CHUNK_SECONDS = run.LONG_CHUNK = 0.02
        options = {"key": 0} | self.options
        if folder is not None:
            options["checkpoint"] = px.Checkpoint(folder, 1e-6)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a few steps are enough
            return px.fit(self.model, self.data, self.method, progress=False, **(options | more))


class Batches:
    """A stream of one size, whatever its numbers are."""

    def __init__(self, x: np.ndarray, y: np.ndarray, size: int = 8):
        self.x, self.y, self.size = x, y, size

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for i in range(0, len(self.x), self.size):
            yield self.x[i : i + self.size], self.y[i : i + self.size]

    def __len__(self) -> int:
        return (len(self.x) + self.size - 1) // self.size


class Scaled(eqx.Module):
    """An own network with a setting that is no array."""

    weight: jax.Array
    scale: float = eqx.field(static=True)
    shape: Any = eqx.field(static=True)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.shape(self.scale * self.weight @ x)


def mlp(activation: str = "tanh", key: int = 0) -> Any:
    """The network of most pairs."""
    return px.networks.MLP(2, 1, (2,), activation=activation, key=key)


def own(scale: float = 1.0, shape: Callable[..., Any] = jnp.tanh) -> px.Model:
    """A model of the own network."""
    return model(network=Scaled(jnp.array([[0.5, -0.5]]), scale, shape))


def noise(sigma: float) -> Callable[..., Any]:
    """A function that closes over a number."""
    return lambda f: dist.Normal(f, sigma)


def through(helper: Callable[..., Any]) -> Callable[..., Any]:
    """A function that closes over another."""
    return lambda f: helper(1.0 * f)


def by_global(f: jax.Array) -> Any:
    """A function that reads a global."""
    return dist.Normal(f, SIGMA)


def normal(f: jax.Array, scale: float) -> Any:
    """A function to give arguments to."""
    return dist.Normal(f, scale)


def shifted(size: float) -> Callable[..., Any]:
    """Another augmentation for each size."""
    return lambda key, x: x + size * jax.random.normal(key, x.shape)


def later(rate: float) -> Any:
    """An optimiser whose rate differs after some steps only."""
    return optax.adam(optax.piecewise_constant_schedule(0.05, {15: rate}))


def point(network: Any = None, method: Any = None, data: Any = None, **options: Any) -> Call:
    """One network by Adam."""
    parts = {k: options.pop(k) for k in ("prior", "likelihood", "where", "rest") if k in options}
    made = network if isinstance(network, px.Model) else model(network=network or mlp(), **parts)
    method = method or px.MaximumAPosteriori(0.05)
    settings = {"epochs": 10, "batch_size": 8} | options
    if isinstance(data, Batches):
        del settings["batch_size"]
    return Call(made, (X, Y) if data is None else data, method, settings)


def likelihood(function: Callable[..., Any]) -> Call:
    """A likelihood that is a function."""
    return point(likelihood=px.likelihoods.From(function))


def descent(optimizer: Any) -> Call:
    """An optimiser of optax."""
    return point(method=px.MaximumAPosteriori(0.05, optimizer=optimizer))


def variational(**settings: Any) -> Call:
    """Bayes by Backprop with minibatches."""
    return point(method=px.BayesByBackprop(learning_rate=0.05, **settings))


def chains(**options: Any) -> Call:
    """Draws."""
    method = px.HMC(chains=2, warmup=6, leapfrog_steps=2)
    return Call(model(), (X, Y), method, {"steps": 24} | options)


def shares(first: float) -> Call:
    """The KL shared among minibatches by a function."""
    return variational(kl_weights=lambda i, m: jnp.where(i == 1, first, (1 - first) / (m - 1)))


def watched(y: np.ndarray = Y, patience: int | None = 3, samples: int = 4) -> Call:
    """Early stopping."""
    return point(validation=px.Validation(X[:6], y[:6], patience=patience, samples=samples))


@functools.cache
def earlier(key: int) -> px.Posterior:
    """A posterior to start from or to continue."""
    return point(key=key).fit(None)


# what made the checkpoint
FIRST: dict[str, Callable[[], Call]] = {
    "point": point,
    "own": lambda: point(own()),
    "stream": lambda: point(data=Batches(X, Y)),
    "variational": variational,
    "shares": lambda: shares(0.5),
    "chains": chains,
    "watched": watched,
    "augmented": lambda: point(augment=shifted(0.1)),
    "constant": lambda: likelihood(lambda f: dist.Normal(f, 0.3)),
    "closed over": lambda: likelihood(noise(0.3)),
    "global": lambda: likelihood(by_global),
    "through": lambda: likelihood(through(noise(0.3))),
    "partial": lambda: likelihood(functools.partial(normal, scale=0.3)),
    "default": lambda: likelihood(lambda f, scale=0.3: dist.Normal(f, scale)),
    "schedule": lambda: descent(later(0.5)),
    "resumed": lambda: point(resume=earlier(1)),
    "started": lambda: point(init=earlier(1)),
}
LIKELIHOOD, START = ("likelihood", "function"), ("init", "start", "weights")
STREAM, EPOCHS = ("data", "stream", "batch"), ("epochs", "steps", "length")
NETWORK = ("network", "model", "activation", "static", "field", "setting")
# name: what made the checkpoint, the other call, and words for what differs
WRONG: dict[str, tuple[str, Callable[[], Call], tuple[str, ...]]] = {
    "activation": ("point", lambda: point(mlp("relu")), NETWORK),
    "static field": ("own", lambda: point(own(2.0)), NETWORK),
    "static function": ("own", lambda: point(own(shape=jnp.sin)), NETWORK),
    "key of the network": ("point", lambda: point(mlp(key=1)), (*START, "network", "key")),
    "init": ("point", lambda: point(init=earlier(1)), START),
    "other init": ("started", lambda: point(init=earlier(2)), START),
    "numbers of a stream": ("stream", lambda: point(data=Batches(X, -Y)), STREAM),
    "last batch of a stream": (
        "stream", lambda: point(data=Batches(X, Y * (np.arange(24) < 23))), STREAM
    ),
    "inputs of a stream": ("stream", lambda: point(data=Batches(OTHER_X, Y)), STREAM),
    "batches of a stream": ("stream", lambda: point(data=Batches(X, Y, 12)), STREAM),
    "constant of a lambda": (
        "constant", lambda: likelihood(lambda f: dist.Normal(f, 0.4)), LIKELIHOOD
    ),
    "code of a lambda": (
        "constant", lambda: likelihood(lambda f: dist.Laplace(f, 0.3)), LIKELIHOOD
    ),
    "closed-over value": ("closed over", lambda: likelihood(noise(0.4)), LIKELIHOOD),
    "closed-over function": ("through", lambda: likelihood(through(noise(0.4))), LIKELIHOOD),
    "partial": ("partial", lambda: likelihood(functools.partial(normal, scale=0.4)), LIKELIHOOD),
    "default argument": (
        "default", lambda: likelihood(lambda f, scale=0.4: dist.Normal(f, scale)), LIKELIHOOD
    ),
    "global": ("global", lambda: likelihood(by_global), LIKELIHOOD),
    "noise": ("point", lambda: point(likelihood=px.likelihoods.Gaussian(0.2)), LIKELIHOOD),
    "kl_weights": (
        "variational", lambda: variational(kl_weights="blundell"), ("kl_weights", "method")
    ),
    "shares of the KL": ("shares", lambda: shares(0.7), ("kl_weights", "method")),
    "initial_rho": (
        "variational", lambda: variational(initial_rho=-2.0), ("initial_rho", "method")
    ),
    "augment": ("augmented", lambda: point(augment=shifted(0.2)), ("augment",)),
    "no augment": ("augmented", point, ("augment",)),
    "schedule later": (
        "schedule", lambda: descent(later(0.1)), ("optimizer", "schedule", "method")
    ),
    "optimizer": ("schedule", lambda: descent(optax.sgd(0.05)), ("optimizer", "method")),
    "learning rate": (
        "point", lambda: point(method=px.MaximumAPosteriori(0.06)), ("learning_rate", "method")
    ),
    "method": ("point", lambda: point(method=px.MaximumLikelihood(0.05)), ("method",)),
    "schedule": (
        "point", lambda: point(method=px.MaximumAPosteriori(0.05, schedule="constant")),
        ("schedule", "method"),
    ),
    "fewer epochs": ("point", lambda: point(epochs=4), EPOCHS),
    "more epochs": ("point", lambda: point(epochs=20), EPOCHS),
    "more steps": ("chains", lambda: chains(steps=40), EPOCHS),
    "prior": ("point", lambda: point(prior=px.priors.Gaussian(0.8)), ("prior",)),
    "kind of prior": ("point", lambda: point(prior=px.priors.Laplace(0.7)), ("prior",)),
    "where": ("point", lambda: point(where="layers.1.*", rest="frozen"), ("where", "model")),
    "targets": ("point", lambda: point(data=(X, -Y)), ("data",)),
    "inputs": ("point", lambda: point(data=(OTHER_X, Y)), ("data",)),
    "row weights": (
        "point", lambda: point(data=(X, Y, np.linspace(0.5, 1.5, 24))), ("data", "weight")
    ),
    "key": ("point", lambda: point(key=1), ("key",)),
    "batch_size": ("point", lambda: point(batch_size=12), ("batch_size",)),
    "thin": ("chains", lambda: chains(thin=2), ("thin",)),
    "draw_bytes": ("chains", lambda: chains(draw_bytes=2000), ("draw_bytes",)),
    "validation data": ("watched", lambda: watched(-Y), ("validation",)),
    "patience": ("watched", lambda: watched(patience=1), ("validation", "patience")),
    "samples of validation": ("watched", lambda: watched(samples=9), ("validation", "samples")),
    "no validation": ("watched", point, ("validation",)),
    "resume": ("resumed", lambda: point(resume=earlier(2)), ("resume", *START)),
}  # fmt: skip
RIGHT = (
    "point", "own", "stream", "variational", "chains", "watched", "augmented", "constant",
    "closed over", "global", "through", "partial", "schedule", "started",
)  # fmt: skip


def begin(name: str, folder: Path) -> None:
    """The call that makes a checkpoint, broken on its way."""
    with suppress(Broken):
        FIRST[name]().fit(folder, callbacks=[StopAfter(3)])


if __name__ == "__main__":  # in a process of its own, for those that are to go on in another
    for name in sys.argv[2:]:
        begin(name, Path(sys.argv[1]) / name)
