"""The pass over the data that sums the curvature at w*."""

from typing import Any, ClassVar, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..._util.tree import dtype_of, named_leaves
from ...data import Batch, Data
from ...model import Model, Parameters
from ...posteriors import Evidence, LaplaceGaussian, Posterior
from ...priors import Gaussian, is_prior
from ..base import Draw, History, Info, Phase, Plan, Start
from ..objective import mean_nll
from .curvature import Block, Sums, add_batch, trace, zeros
from .marginal import solve

Precision = Literal["auto", "fixed", "marginal_likelihood", "per_array"]
PRECISIONS = get_args(Precision)


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

    def hand_over(self, state: CurvatureState) -> Start:
        return Start(state.params, state.state, None, given=True, tuned=state)

    def finish(self, state: CurvatureState, draws: Draw | None) -> Posterior:
        params, model = state.params, self.model
        names = list(named_leaves(params))
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
        each = {names[i]: tau for i, tau in factors.items()}
        if mode == "marginal_likelihood":
            each = {"all": next(iter(factors.values()))}
        known = int(state.step) >= self.length()
        evidence = float(state.log_likelihood) + float(value)
        return gaussian(
            model, self.plan, self.blocks, arrays, params, state.state, bool(self.linearised), each,
            evidence if known else None,
        )  # fmt: skip


def gaussian(
    model: Model,
    plan: Plan,
    blocks: tuple[Block, ...],
    arrays: dict[str, PyTree],
    params: Parameters,
    state: PyTree,
    linearised: bool,
    factors: dict[str, Any],
    evidence: float | None,
) -> LaplaceGaussian:
    """The posterior of what ``solve`` gives; its evidence where all priors are Gaussian."""
    leaves, names = jax.tree.leaves(params), list(named_leaves(params))
    described = {}
    for block in blocks:
        words = {"leaves": "\n".join(names[i] for i in block.leaves)}
        if block.kind == "kronecker":
            assert block.site is not None
            words["order"] = ",".join(map(str, block.site.order))
            words["shape"] = ",".join(map(str, leaves[block.leaves[0]].shape))
        described[block.name] = arrays[block.name] | words
    priors = jax.tree.leaves(model.priors, is_leaf=is_prior)
    # the precision of another prior is a bound on its curvature, no part of an evidence
    known = all(isinstance(priors[i], Gaussian) for b in blocks for i in b.leaves)
    return LaplaceGaussian(
        model,
        state,
        plan.targets,
        mu=params,
        blocks=described,
        linearised=linearised,
        prior_factors=factors,
        evidence=Evidence(evidence, 0.0, "approximation")
        if known and evidence is not None
        else None,
    )
