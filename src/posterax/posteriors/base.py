"""What inference returns: something to sample from, predict with, save, and learn on with."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._util.admit import admit_inputs, check_finite
from .._util.checks import whole_number
from .._util.jax_names import shaped
from .._util.keys import KeyLike, as_key, two_keys
from .._util.memory import refuse_draws
from .._util.tree import dtype_of, tree_bytes, tree_size
from ..model import Model, Parameters
from ..networks.base import Footprint, footprint
from ..predictive import Particles, Predictive, Targets
from ..priors import PerWeight
from ..program.compiled import compiled
from ..program.walker import equations
from .record import Record

if TYPE_CHECKING:
    from ..diagnostics.diagnosis import Diagnosis

GROUP_BYTES = 2**28  # on a GPU, of the largest array of samples that are mapped at once

Summary = Callable[[Parameters], Any]
Estimate = tuple[np.ndarray, np.ndarray]  # and its standard error


class Evidence(NamedTuple):
    """log p(D) in nats, the standard error of that logarithm, and what kind of value it is.

    The error is of sampling: 0 where nothing random enters. ``kind`` is ``"exact"``
    (``px.Conjugate``, ``px.Enumeration``), ``"estimate"`` (``px.SMC``, ``px.ImportanceSampling``),
    ``"approximation"`` (``px.Laplace``: its distance from the truth is unknown) or ``"bound"``
    (an ELBO: the truth lies above it).
    """

    value: float
    error: float
    kind: str = "estimate"


class Posterior(eqx.Module):
    """A distribution over the parameters of a model, given data.

    Subclasses say how a draw is identified (``particles``) and made (``parameters``); sampling,
    expectations, prediction, saving and moment matching follow.
    """

    centred: ClassVar[bool] = False  # whether the means of the weights are a network that fits

    model: Model
    state: Any
    targets: Targets = eqx.field(static=True)
    record: Any = eqx.field(default=None, kw_only=True)
    evidence: Any = eqx.field(default=None, kw_only=True)  # an ``Evidence``, where it is known

    # -- what a family gives

    def particles(self, key: jax.Array, samples: int | None) -> Particles:
        """Identities of draws with their weights; ``None`` means the family's own number.

        By default 100 keys: for families whose draws are independent.
        """
        return Particles.equal(jax.random.split(key, samples or 100))

    def most(self, samples: int) -> int:
        """How many draws there are for so many ``samples``: fewer, where they are stored."""
        return samples

    def parameters(self, identity: PyTree) -> Parameters:
        """The draw with this identity: pure, so that it can be made inside a compiled program."""
        raise NotImplementedError

    def network_state(self, identity: PyTree) -> Any:
        """The network's state (running averages) that goes with a draw."""
        return self.state

    def moments(self) -> tuple[Parameters, Parameters]:
        """Mean and standard deviation of every parameter."""
        raise NotImplementedError

    def antithetic(self, key: jax.Array, samples: int | None) -> Particles:
        """The particles of a prediction: in opposite pairs where the posterior is symmetric."""
        return self.particles(key, samples)

    def evaluate(self, ids: PyTree, x: PyTree) -> tuple[jax.Array, Any]:
        """The network's outputs (samples, rows, …) and the likelihood's parameters, by sample."""

        def one(identity: PyTree) -> tuple[jax.Array, Any]:
            params, state = self.parameters(identity), self.network_state(identity)
            return self.model.apply(params, state, x, None, training=False)[0], params.likelihood

        return map_samples(one, ids, jax.tree.leaves(x)[0].shape[0])

    def log_prob(self, parameters: Parameters) -> jax.Array:
        """The posterior's log density at one set of parameters, where the family has one."""
        raise ValueError(self.no_density())

    def no_density(self) -> str:
        """Why ``log_prob`` has no answer, and what has."""
        return (
            f"{type(self).__name__} has no density: posterior.as_prior() gives a Gaussian with "
            "its moments, which can be a prior or the proposal of px.ImportanceSampling"
        )

    @property
    def members(self) -> int:
        """How many networks were trained apart; 0 where this is no ensemble."""
        return 0

    def member(self, index: Any) -> "Posterior":
        """One of them, as a posterior of its own."""
        raise NotImplementedError

    def fold(self, index: Any, folds: int) -> "Posterior":
        """Those of its networks or chains that left out this one of so many folds of the rows."""
        raise NotImplementedError(f"{type(self).__name__} is not made of networks apart")

    def mixture(self) -> "Posterior":
        """The ensemble of posteriors like this one, whose arrays have a leading axis of members."""
        raise NotImplementedError

    # -- what follows

    divisible: ClassVar[bool] = True  # whether its particles can be taken a few at a time

    def output_shape(self, x: PyTree) -> tuple[int, ...]:
        """The shape of the network's outputs for inputs like these, which have to fit."""
        return self.model.output_shape(x)

    def footprint(self, x: PyTree) -> Footprint:
        """How large outputs and values on the way to them are."""
        return footprint(self.model.network, self.model.likelihood.split(x)[0])

    @property
    def log_evidence(self) -> Evidence:
        """log p(D) = log ∫ p(D | w) p(w) dw in nats, and its standard error.

        The model's own score of the data, before which no parameters were chosen: its difference
        between two models is the log Bayes factor.
        """
        if self.evidence is None:
            method = self.record.method if self.record is not None else ""
            raise ValueError(
                f"log_evidence: this posterior of {method or type(self).__name__} has none; "
                + self.no_evidence()
            )
        return self.evidence

    @property
    def elbo(self) -> Evidence:
        """The ELBO at the end of a variational fit, in nats over all rows: a bound on log p(D)."""
        known = self.record.settings.get("bound") if self.record is not None else None
        if not known or known["value"] is None:
            raise ValueError(
                f"elbo: this {type(self).__name__} has none in its record; "
                "px.selection.elbo(posterior, data) computes it, where the posterior has a density"
            )
        return Evidence(float(known["value"]), float(known["error"]), "bound")

    def no_evidence(self) -> str:
        """What has an evidence instead, or how this posterior would have had one."""
        return (
            "px.ImportanceSampling and px.SMC estimate it, once they ran to their end, and "
            "px.Enumeration has it exactly where all weights are on a grid, px.Conjugate where the "
            "network is affine in them; px.Laplace approximates it"
        )

    def _sizes(self) -> dict[str, int]:
        """How many members, chains, draws or states it is made of, where there are such."""
        return {}

    def __repr__(self) -> str:
        record = self.record or Record()
        spent = {name: record.settings.get(name) for name in ("epochs", "steps")}
        lines = (
            {"method": record.method or None, **spent, "interrupted": record.interrupted or None},
            {"weights": tree_size(self.model.parameters), **self._sizes()},
            {"network": self.model.network_name(), "targets": self.targets.given},
        )
        short = lambda v: f"{v:,.4g}" if isinstance(v, float) else v  # noqa: E731
        shown = [
            ", ".join(f"{name}={short(v)}" for name, v in line.items() if v is not None)
            for line in lines
        ]
        return "\n    ".join([f"{type(self).__name__}(", *(f"{s}," for s in shown if s)]) + "\n)"

    @property
    def history(self) -> dict[str, np.ndarray]:
        """The course of the fit, an array for each quantity (``nll``, ``kl``, …)."""
        return self.record.history if self.record is not None else {}

    def bare(self) -> Self:
        """Without record and evidence, as compiled programs take it."""
        if self.record is None and self.evidence is None:
            return self
        return dataclasses.replace(self, record=None, evidence=None)

    def sample(self, key: KeyLike, n: int) -> Parameters:
        """``n`` draws of all parameters, on a leading axis."""
        n = whole_number("n", n)
        refuse_draws("n", n, tree_bytes(self.model.parameters))
        pick, draw = jax.random.split(as_key(key))
        ids, weights = self.particles(draw, n)
        if len(weights) != n or not bool(jnp.all(weights == weights[0])):
            index = jax.random.choice(pick, len(weights), (n,), p=weights)
            ids = jax.tree.map(lambda a: a[index], ids)
        return _draw_many(self.bare(), ids)

    def expectation(
        self, function: Summary, *, samples: int | None = None, key: KeyLike = 0
    ) -> Estimate:
        """E[F(w) | D] and its Monte Carlo standard error.

        Chains count the dependence of their draws on one another, by the effective sample size of
        each component of F.

        Args:
            function: F, from parameters to an array.
            samples: draws to use (default: the posterior's own number).
            key: an int or a JAX key.
        """
        if samples is not None:
            one = jax.eval_shape(function, self.model.parameters)
            refuse_draws("samples", self.most(whole_number("samples", samples)), tree_bytes(one))
        return self._expectation(function, samples, as_key(key))

    def _expectation(self, function: Summary, samples: int | None, key: jax.Array) -> Estimate:
        ids, weights = self.particles(key, samples)
        values = np.asarray(evaluate_each(function, self.bare(), ids))
        return weighted_mean(np.asarray(weights, np.float64), values)

    def predict(
        self,
        x: PyTree,
        *,
        samples: int | None = None,
        key: KeyLike = 0,
        block_bytes: int | None = None,
        least_rows: int = 1,
    ) -> Predictive:
        """The predictive distribution at new inputs.

        Args:
            x: inputs, in the form of the training inputs.
            samples: posterior draws to average over (default: 100, or all stored draws).
            key: an int or a JAX key; the same key gives the same predictions.
            block_bytes: bound on the working memory of one block of inputs (default: 32 MiB, or
                1 GiB on an accelerator).
            least_rows: fewer inputs are padded to this many, so that all small calls share one
                compiled program and one rounding.
        """
        x = admit_inputs(x)
        if any(np.size(leaf) == 0 for leaf in jax.tree.leaves(x)):
            raise ValueError("x is empty: predict needs at least one input")
        check_finite("x", x)
        x = admit_inputs(x, dtype_of(self.model.parameters))
        self.output_shape(x)
        if samples is not None:
            samples = whole_number("samples", samples)
            refuse_draws("samples", self.most(samples))
        weights_key, noise_key = two_keys(as_key(key))
        particles = self.antithetic(weights_key, samples)
        return Predictive(
            self, x, particles, noise_key,
            draws=samples, block_bytes=block_bytes,
            least_rows=whole_number("least_rows", least_rows),
        )  # fmt: skip

    def to_arviz(self) -> Any:
        """The draws as ArviZ has them, for posteriors that are made of draws."""
        raise ValueError(f"to_arviz: {type(self).__name__} has no draws of its own, as px.NUTS has")

    def diagnose(self, x: PyTree = None, *, data: Any = None, most: int = 500) -> "Diagnosis":
        """Whether this posterior can be trusted, in numbers and in words.

        ``print`` the result. Chains: R-hat and effective sample sizes of the weights and, given
        inputs ``x``, of the predictions; divergences, energy, acceptance. Variational fits:
        whether the ELBO has settled, the network is still in use, and prior and data agree.
        Others: whether the training has settled and draws fit as well as their centre. ``kinds``
        has what is wrong in a word each.

        Args:
            x: inputs at which the chains should agree. Hidden units can change places without any
                change in the function, so that weights may disagree where predictions do not.
            data: ``(x, y)`` of the fit, for posteriors without chains: what the record has of the
                end of the fit is computed anew.
            most: at most this many weights, and this many predictions, evenly spread over all.
        """
        from ..diagnostics.diagnosis import diagnose

        return diagnose(self, x, data=data, most=most)

    def network(self, key: KeyLike | None = None) -> Any:
        """The network with the weights that were found, in the form in which it was given.

        An Equinox module (``(module, state)`` where it has a state), a Flax module, or ``(params,
        apply)``: to be called, or to be the trained network of another model. Without a key its
        weights are the posterior's means; members of an ensemble and draws of a chain have no mean
        that fits, and need a key.

        Args:
            key: an int or a JAX key, for the network of one posterior draw.

        Example:
            >>> import posterax as px
            >>> from posterax.demo import curve_data, curve_model
            >>> model = curve_model()
            >>> posterior = px.fit(model, curve_data(8), px.MaximumAPosteriori(), steps=5, key=0)
            >>> trained = posterior.network()
            >>> px.Model(trained, likelihood=model.likelihood, where="layers.1.*", rest="frozen")
            Model(...)
        """
        if key is None and not self.centred:
            raise ValueError(
                f"{type(self).__name__}: its mean does not fit; network(key=0) gives one draw's"
            )
        if key is None:
            params, state = self.moments()[0], self.state
        else:
            pick, draw = jax.random.split(as_key(key))
            ids, weights = self.particles(draw, None)
            index = jax.random.choice(pick, len(weights), p=weights)
            identity = jax.tree.map(lambda a: a[index], ids)
            params, state = self.parameters(identity), self.network_state(identity)
        return self.model.network.rebuild(params.network, state)

    def as_prior(self) -> PerWeight:
        """This posterior as the prior of the next data, a Gaussian with its moments."""
        mean, std = self.moments()
        name, std = (
            type(self).__name__,
            self.model.bayesian(std),
        )  # points have no spread, and stay points
        if any(float(jnp.min(s)) <= 0 for s in jax.tree.leaves(std) if s.size):
            raise ValueError(
                f"{name} has parameters without spread, so it is no prior: fit with another method"
            )
        return PerWeight(mean, std)

    def save(self, path: str | Path) -> None:
        """Write to one file (safetensors with a JSON header); see ``px.load``."""
        from ..files.saved import save

        save(self, path)


def map_samples(function: Callable[[Any], Any], ids: PyTree, rows: int) -> Any:
    """``function`` of every identity, several at once where one alone leaves the device idle.

    One large product after another is best on a CPU; a GPU minds the number of kernels, and has
    memory for several. A divisor of the samples, where there is one, leaves no remainder to compile
    apart.
    """
    samples = len(jax.tree.leaves(ids)[0])
    if jax.default_backend() == "cpu":
        most = max(1, min(samples, 2048 // rows))
    else:
        most = max(1, min(samples, 2**18 // rows, GROUP_BYTES // _largest_value(function, ids)))
    divisor = next(d for d in range(most, 0, -1) if samples % d == 0)
    group = divisor if 2 * divisor >= most else most
    # a batch of one would still be a batch, which a CPU's matrix products do not fuse with
    return jax.lax.map(function, ids) if group == 1 else _in_groups(function, ids, group)


def _largest_value(function: Callable[[Any], Any], ids: PyTree) -> int:
    """Bytes of the largest array that one sample takes."""
    program = jax.make_jaxpr(function)(jax.tree.map(lambda a: a[0], ids))
    values = [shaped(out) for eqn in equations(program) for out in eqn.outvars]
    return max((v.size * getattr(v.dtype, "itemsize", 1) for v in values), default=1)


def _in_groups(function: Callable[[Any], Any], ids: PyTree, group: int) -> Any:
    """As ``lax.map`` with a batch size, of which an array without entries may come back too."""
    samples = len(jax.tree.leaves(ids)[0])
    end = samples // group * group
    each = jax.vmap(function)
    parts = jax.tree.map(lambda a: a[:end].reshape(-1, group, *a.shape[1:]), ids)
    values = jax.tree.map(lambda a: a.reshape(end, *a.shape[2:]), jax.lax.map(each, parts))
    if end == samples:
        return values
    rest = each(jax.tree.map(lambda a: a[end:], ids))
    return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), values, rest)


def weighted_mean(w: np.ndarray, values: np.ndarray) -> Estimate:
    """The mean over independent draws, by the delta method for a self-normalised average."""
    mean = np.tensordot(w, values, axes=1)
    return mean, np.sqrt(np.tensordot(np.square(w), np.square(values - mean), axes=1))


@compiled
def _draw_many(posterior: Posterior, ids: PyTree) -> Parameters:
    return jax.lax.map(posterior.parameters, ids)


@compiled
def evaluate_each(function: Callable[..., Any], posterior: Posterior, ids: PyTree) -> Any:
    """``function`` of the parameters with each identity, on a leading axis."""
    return jax.lax.map(lambda i: function(posterior.parameters(i)), ids)
