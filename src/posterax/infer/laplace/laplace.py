r"""The Laplace approximation: a Gaussian with the curvature of the log joint at its maximum.

    q(w) = N(w | w*, (H + P)⁻¹),   w* = argmax log p(D | w) + log p(w)

Two phases: w* by gradient descent (that of ``px.MaximumAPosteriori``), then one pass over the data
that sums the curvature H of the negative log likelihood (see ``curvature``). P is the prior's.
"""

import math
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..._util.memory import refuse_beyond_memory
from ..._util.tree import abstract_rows, dtype_of, named_leaves
from ...data import Batch, Data
from ...model import Model, Parameters
from ...networks.parts import Where
from ...networks.sparse import pruned_weights
from ...posteriors import Evidence, LaplaceGaussian, Posterior
from ...priors import Gaussian, is_prior
from ..base import Draw, History, Info, Method, Needs, Phase, Plan, Start
from ..objective import mean_nll, need_prior
from ..points.point import MaximumAPosteriori
from ..settings import Flag, Optimizer, Positive, Runs, Schedule
from .curvature import Block, Sums, add_batch, layout, trace, zeros
from .marginal import solve

Precision = Literal["fixed", "marginal_likelihood", "per_array"]
PRECISIONS = get_args(Precision)
FULL = 1000  # structure="auto": up to so many weights the whole matrix costs less than the fit


class CurvatureState(NamedTuple):
    """The maximum, the network's state there, and sums over the examples so far."""

    params: Parameters
    state: PyTree
    sums: Sums
    mass: jax.Array
    log_likelihood: jax.Array
    step: jax.Array


class CurvaturePhase(Phase):
    """One pass over the data at w*, the network in prediction mode."""

    blocks: tuple[Block, ...] = eqx.field(static=True)
    probes: int = eqx.field(static=True)
    # these two as arrays: they matter at the end alone, and compile nothing anew
    linearised: np.ndarray
    precision: np.ndarray  # an index into PRECISIONS

    title: ClassVar[str] = "curvature"
    finishes: ClassVar[Any] = "at the end"
    lengthens: ClassVar[bool] = False  # more steps train w* further

    def length(self) -> int:
        return int(self.plan.batches)

    def init(self, start: Start, data: Data | None, key: jax.Array) -> CurvatureState:
        given = start.posterior
        if given is not None and not given.centred:
            raise ValueError(
                f"init: the mean of a {type(given).__name__} is no network that fits: pass "
                "init=px.fit(…, px.MaximumAPosteriori()), or init=posterior.network(key=0)"
            )
        zero = jnp.zeros((), dtype_of(self.model.parameters))
        return CurvatureState(
            start.parameters, start.state, zeros(self.blocks, self.model),
            zero, zero, jnp.zeros((), jnp.int32),
        )  # fmt: skip

    def step(self, state: CurvatureState, batch: Batch, key: jax.Array) -> tuple[PyTree, Info]:
        params, model = state.params, self.model
        log_p = model.pointwise(params, batch.x, batch.y, state=state.state)
        total = jnp.sum(batch.weight * log_p)
        sums = add_batch(
            state.sums, self.blocks, model, params, state.state, batch, key, self.probes
        )
        mass = state.mass + jnp.sum(batch.weight)
        new = state._replace(
            sums=sums, mass=mass, log_likelihood=state.log_likelihood + total, step=state.step + 1
        )
        # whatever is not finite in a sum shows in its trace
        terms = {"nll": mean_nll(-total, batch), "trace": trace(sums, self.blocks, mass)}
        return new, Info(terms)

    def explain(self, state: PyTree, history: History, term: str | None = None) -> str | None:
        if term == "trace":
            return "the curvature at w*: the network's derivatives overflow there; fit in float64"
        return super().explain(state, history, term)

    def finish(self, state: CurvatureState, draws: Draw | None) -> Posterior:
        params, model = state.params, self.model
        leaves, names = jax.tree.leaves(params), list(named_leaves(params))
        mode = PRECISIONS[int(self.precision)]
        with jax.enable_x64(True):
            arrays, factors, value, sound = solve(
                self.blocks, model, params, state.sums, state.mass, self.plan.total, mode
            )
        bad = [names[i] for i, good in sound.items() if not bool(good)]
        if bad:
            raise ValueError(
                f"prior: that of {bad[0]} does not fall off from its centre where the weights are, "
                "and so has no precision there; use px.priors.Gaussian(1.0), for instance"
            )
        blocks = {}
        for block in self.blocks:
            words = {"leaves": "\n".join(names[i] for i in block.leaves)}
            if block.kind == "kronecker":
                assert block.site is not None
                words["order"] = ",".join(map(str, block.site.order))
                words["shape"] = ",".join(map(str, leaves[block.leaves[0]].shape))
            blocks[block.name] = arrays[block.name] | words
        each = {names[i]: tau for i, tau in factors.items()}
        if mode == "marginal_likelihood":
            each = {"all": next(iter(factors.values()))}
        priors = jax.tree.leaves(model.priors, is_leaf=is_prior)
        # the precision of another prior is a bound on its curvature, no part of an evidence
        known = all(isinstance(priors[i], Gaussian) for b in self.blocks for i in b.leaves)
        known = known and int(state.step) >= self.length()
        evidence = Evidence(float(state.log_likelihood) + float(value), 0.0, "approximation")
        return LaplaceGaussian(
            model,
            state.state,
            self.plan.targets,
            mu=params,
            blocks=blocks,
            linearised=bool(self.linearised),
            prior_factors=each,
            evidence=evidence if known else None,
        )


class Laplace(Method):
    r"""The Laplace approximation: a Gaussian around the maximum a posteriori.

    ``epochs`` (or ``steps``) count the training of w*; the pass for the curvature comes on top.
    ``posterior.log_evidence``, for Gaussian priors, is the approximation's own,

        log p(D) ≈ log p(D | w*) + log p(w*) + D/2 log 2π − ½ log |H + P|

    exact where the log joint is quadratic. w* must be a maximum: train to convergence.

    H is the generalised Gauss–Newton matrix with the Fisher information of the likelihood (see
    ``infer/fisher.py``), so it has no negative direction. A likelihood's own parameters (learned
    noise) are part of q, in a block of their own. Weights without a prior stay at w*. P is 1/scale²
    for a Gaussian prior, and for mixtures of Gaussians (``ScaleMixture``, ``Laplace``,
    ``Hierarchical``) the mean precision of the mixture given w*.

    Args:
        structure: ``"full"``: all weights correlated; ``"kronecker"``: within an array, by two
            factors; ``"diagonal"``: none; ``"last_layer"``: the last layer's weights in full, all
            others fixed at w* (the evidence is then that of the last layer, given the rest);
            ``"auto"``: full up to 1000 weights, kronecker beyond (diagonal where a network is
            pruned: what is left of an array has no two factors).
        predictive: ``"linearised"``: predictions of the network's linearisation at w*, the model
            that q is the posterior of (Immer, Korzepa and Bauer 2021); ``"sampled"``: those of the
            network itself with weights drawn from q, which needs a q that is nearly right.
        prior_precision: ``"fixed"``: the model's prior as it is; ``"marginal_likelihood"``: its
            precision times the factor that maximises the log evidence, w* and H held fixed;
            ``"per_array"``: a factor for each array. Gaussian priors only.
        layer: which weights ``"last_layer"`` means, as in ``px.Model(where=…)``; by default those
            of the last product in the network's program.
        train: with ``False`` w* is where the fit starts, at ``init=`` or the network's own
            weights, and only the curvature is computed.
        probes: random vectors for each example where the Fisher information has no closed form
            (``px.likelihoods.From``) or more than 128 columns.
        learning_rate: the step size of Adam.
        schedule: ``"cosine"`` (the rate falls to zero over the fit) or ``"constant"``.
        optimizer: any optax transformation instead of Adam.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 20)[:, None].astype("float32")
        >>> network = px.networks.MLP(1, 1, (4,), key=0)
        >>> model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
        >>> posterior = px.fit(model, (x, x[:, 0] ** 2), px.Laplace(learning_rate=0.05), epochs=300)
        >>> inside, outside = posterior.predict(np.array([[0.0], [3.0]])).epistemic
        >>> bool(outside > inside)
        True
        >>> bool(np.isfinite(posterior.log_evidence.value))
        True

    Reference:
        MacKay, *A practical Bayesian framework for backpropagation networks*, Neural Computation
        1992; Ritter, Botev and Barber, *A scalable Laplace approximation for neural networks*,
        ICLR 2018; Immer, Korzepa and Bauer, *Improving predictions of Bayesian neural nets via
        local linearization*, AISTATS 2021; Daxberger, Kristiadi, Immer, Eschenhagen, Bauer and
        Hennig, *Laplace redux*, NeurIPS 2021. Departures: biases and other small arrays without
        Kronecker factors get dense blocks; the prior's precision is scaled after training only.
    """

    structure: Literal["auto", "full", "kronecker", "diagonal", "last_layer"] = "auto"
    predictive: Literal["linearised", "sampled"] = "linearised"
    prior_precision: Precision = "fixed"
    layer: Where | None = None
    train: Flag = True
    probes: Runs = 16
    learning_rate: Positive = 1e-3
    schedule: Schedule = "cosine"
    optimizer: Optimizer = None

    def __check_init__(self) -> None:
        if self.layer is not None and self.structure != "last_layer":
            raise ValueError("layer is for structure='last_layer'; leave it out, or choose that")

    @property
    def needs(self) -> Needs:
        """Epochs of training; without it there is one pass over the data, and nothing to count."""
        return Needs("epochs" if self.train else "nothing")

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        need_prior(model, "Laplace")
        structure: str = self.structure
        pruned = pruned_weights(model.network)
        if structure == "auto":
            beyond = "diagonal" if pruned else "kronecker"
            structure = "full" if model.bayesian_size <= FULL else beyond
        if structure == "kronecker" and pruned:
            raise ValueError(
                "structure='kronecker' needs whole arrays, and the network is pruned of entries "
                f"of {', '.join(pruned)}: use structure='diagonal', or 'full' where it fits"
            )
        blocks = layout(model, abstract_rows(plan.inputs, 1), structure, self.layer)
        self._check_priors(model, blocks)
        width = np.dtype(dtype_of(model.parameters)).itemsize
        shapes = [shape for block in blocks for shape in block.shapes(model).values()]
        count = sum(map(math.prod, shapes))
        instead = {
            "full": "structure='kronecker', 'diagonal' or 'last_layer'",
            "last_layer": "structure='kronecker' or 'diagonal'",
            "kronecker": "structure='diagonal' or 'last_layer'",
        }.get(structure, "a smaller network")
        size = sum(block.size for block in blocks)
        refuse_beyond_memory(
            f"structure={structure!r} for {size:,} weights ({count:,} numbers, and three times as "
            f"many in float64 at the end; needs less: {instead})",
            (2 * width + 3 * 8) * count,
        )
        linearised = np.asarray(self.predictive == "linearised")
        precision = np.asarray(PRECISIONS.index(self.prior_precision))
        curvature = CurvaturePhase(model, plan, blocks, self.probes, linearised, precision)
        if not self.train:
            return [curvature]
        training = MaximumAPosteriori(self.learning_rate, self.schedule, self.optimizer)
        return [*training.phases(model, plan), curvature]

    def _check_priors(self, model: Model, blocks: tuple[Block, ...]) -> None:
        """A factor for the precision needs priors that have one."""
        if self.prior_precision == "fixed":
            return
        count = len(jax.tree.leaves(model.parameters.network))
        priors = list(named_leaves(model.priors, is_leaf=is_prior).items())
        for i in (i for block in blocks for i in block.leaves if i < count):
            name, prior = priors[i]
            if not isinstance(prior, Gaussian):
                raise ValueError(
                    f"prior_precision={self.prior_precision!r} needs Gaussian priors, and that of "
                    f"{name} is {type(prior).__name__}: use px.priors.Gaussian, or 'fixed'"
                )
