r"""Enumeration: the denominator of Bayes' rule summed state by state, where weights are few.

p(s | D) = p(D | s) p(s) / Σ_s′ p(D | s′) p(s′)

n weights with two values each have 2ⁿ states. Up to 2²² the sum takes seconds to minutes and
leaves nothing to doubt; 2¹⁰⁰ states no computer will ever visit, which is why the other methods
exist. It is the oracle that they are checked against.
"""

import math
import warnings
from collections import Counter
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..._util.tree import dtype_of, named_leaves
from ...data import Batch, Data
from ...model import Model
from ...networks.base import footprint
from ...posteriors import Enumerated, Evidence, Posterior
from ...posteriors.enumerated import decode
from ...priors import is_grid, is_prior
from ..base import Draw, History, Info, Method, Needs, Phase, Plan, Start
from ..chains.base import NO_POINTS
from ..objective import log_likelihood
from ..settings import Runs

MOST_STATES = 2**22
MOST_AT_ONCE = 2**12  # states in a step
ROWS_AT_ONCE = 2**18  # states × rows of data in a step: some milliseconds, so that Ctrl-C is heard
BYTES_AT_ONCE = 2**25  # intermediate values of the states that are evaluated side by side


class Visited(NamedTuple):
    """log p(D, s) of the states so far (−∞ ahead), how many steps that took, their logsumexp."""

    log_joint: jax.Array
    step: jax.Array
    log_sum: jax.Array
    state: PyTree


class Summation(Phase):
    """Each step evaluates the next ``chunk`` states."""

    states: int = eqx.field(static=True)
    chunk: int = eqx.field(static=True)

    title: ClassVar[str] = "enumerating"

    def length(self) -> int:
        return -(-self.states // self.chunk)

    def init(self, start: Start, data: Data | None, key: jax.Array) -> Visited:
        nothing = jnp.asarray(-jnp.inf, dtype_of(self.model.parameters))
        log_joint = jnp.full((self.length() * self.chunk,), nothing)
        return Visited(log_joint, jnp.zeros((), jnp.int32), nothing, start.state)

    def step(self, state: Visited, batch: Batch, key: jax.Array) -> tuple[Visited, Info]:
        first = state.step * self.chunk
        numbers = first + jnp.arange(self.chunk, dtype=jnp.int32)

        def one(number: jax.Array) -> jax.Array:
            params = decode(self.model, number)
            likelihood = log_likelihood(self.model, params, batch, state.state)
            log_joint = self.model.log_prior(params) + likelihood
            # a state that overflows the network explains nothing
            sound = (number < self.states) & ~jnp.isnan(log_joint)
            return jnp.where(sound, log_joint, -jnp.inf).astype(state.log_joint.dtype)

        most = self._side_by_side(batch)
        few = most < self.chunk
        values = jax.lax.map(one, numbers, batch_size=most) if few else jax.vmap(one)(numbers)
        log_joint = jax.lax.dynamic_update_slice(state.log_joint, values, (first,))
        log_sum = jnp.logaddexp(state.log_sum, jax.nn.logsumexp(values))
        shown = jnp.maximum(log_sum, jnp.finfo(log_sum.dtype).min)
        new = Visited(log_joint, state.step + 1, log_sum, state.state)
        return new, Info({"log_evidence": shown})

    def _side_by_side(self, batch: Batch) -> int:
        """How many states' intermediate values may be there at the same time."""
        inputs = self.model.likelihood.split(batch.x)[0]
        rows = jax.tree.leaves(inputs)[0].shape[0]
        shape, widest, _ = footprint(self.model.network, inputs)
        return max(1, BYTES_AT_ONCE // (12 * math.prod(shape) + 2 * rows * widest + 1))

    def explain(self, state: Visited, history: History, term: str | None = None) -> str | None:
        return term and f"{term}: some state has an infinite density; check the scale of the data"

    def finish(self, state: Visited, draws: Draw | None) -> Posterior:
        log_joint = np.asarray(state.log_joint[: self.states], np.float64)
        best = log_joint.max()
        if not np.isfinite(best):
            raise FloatingPointError(
                "no state explains the data: the likelihood is 0 or not finite at every one; give "
                "the grid other values"
            )
        log_sum = float(best + np.log(np.sum(np.exp(log_joint - best))))
        visited = int(state.step) * self.chunk
        if visited < self.states:
            warnings.warn(
                f"{visited:,} of {self.states:,} states were visited: the posterior leaves out "
                "the others; go on with px.fit(…, resume=posterior)",
                stacklevel=2,
            )
        return Enumerated(
            self.model, state.state, self.plan.targets,
            log_probs=jnp.asarray(log_joint - log_sum, state.log_joint.dtype),
            evidence=Evidence(log_sum, 0.0, "exact") if visited >= self.states else None,
        )  # fmt: skip


class Enumeration(Method):
    r"""The exact posterior of weights on a grid, by summing over all their states.

    p(s | D) = p(D, s) / p(D),  p(D) = Σ_s p(D, s)

    All parameters must have a [`px.priors.Grid`][posterax.priors.Grid]; up to 2²² states. Gives
    an ``Enumerated`` posterior: exact predictions, expectations, ``marginals()`` and
    ``log_evidence``. There is nothing to tune, and ``fit`` takes neither ``steps`` nor ``epochs``.

    Args:
        chunk: states in one step (default: as many as make some milliseconds of work).

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], "float32")
        >>> network = px.networks.MLP(2, 1, (2,), key=0)
        >>> model = px.Model(network, px.priors.Grid([-1.0, 1.0]), px.likelihoods.Gaussian(0.5))
        >>> posterior = px.fit(model, (x, x.sum(1)), px.Enumeration())
        >>> len(posterior.log_probs)  # 2 × 2 + 2 + 2 + 1 weights
        512
        >>> posterior.log_evidence.error
        0.0

    Reference:
        Bayes' rule itself; MacKay, *Information Theory, Inference, and Learning Algorithms*,
        2003, chapter 21, on exact inference by complete enumeration.
    """

    chunk: Runs | None = None

    needs = Needs(
        "nothing", all_data=True, discrete=True, no_points=NO_POINTS,
        no_start="visits every state, wherever it starts; leave init out",
    )  # fmt: skip

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        states = _count(model)
        # a power of two, so that similar data make the same program
        wanted = max(1, min(MOST_AT_ONCE, ROWS_AT_ONCE // plan.batch_size, states))
        chunk = 2 ** (wanted.bit_length() - 1) if self.chunk is None else min(self.chunk, states)
        return [Summation(model, plan, states, chunk)]


def _count(model: Model) -> int:
    """The number of states, or why there is none that can be visited."""
    sizes: Counter[int] = Counter()
    priors = named_leaves(model.priors, is_leaf=is_prior)
    for (name, prior), w in zip(priors.items(), jax.tree.leaves(model.parameters), strict=True):
        if not is_grid(prior):
            raise ValueError(
                f"prior: Enumeration needs a px.priors.Grid for every parameter, and {name} has "
                f"{type(prior).__name__}"
                + ("; give the likelihood a known noise" * name.startswith("likelihood"))
            )
        sizes[len(prior)] += w.size
    exponent = sum(n * math.log10(k) for k, n in sizes.items())
    if exponent > math.log10(MOST_STATES) + 1e-9:
        powers = " · ".join(f"{k}^{n}" for k, n in sorted(sizes.items()))
        size = f"{10 ** (exponent % 1):.2f}e{int(exponent)}"
        raise ValueError(
            f"model: {powers} ≈ {size} states are too many to visit (Enumeration goes to 2^22 = "
            f"{MOST_STATES:,}): use px.Metropolis or px.ImportanceSampling, or freeze some weights"
        )
    return math.prod(k**n for k, n in sizes.items())
