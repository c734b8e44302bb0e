r"""Point estimates: maximum likelihood and maximum a posteriori.

    w_ML  = argmax log p(D | w)
    w_MAP = argmax log p(D | w) + log p(w)

A Gaussian prior makes the second L2 regularisation, a Laplace prior L1.
"""

from typing import ClassVar, NamedTuple

import jax
from jaxtyping import PyTree

from ...data import Batch, Data
from ...model import Model, Parameters
from ...posteriors import Point, Posterior
from ..base import Draw, Info, Method, Needs, Phase, Plan, Start, with_arrays
from ..objective import DescentPhase, batch_nll, is_elementwise, mean_nll
from ..settings import Optimizer, Rate, Schedule


class PointState(NamedTuple):
    """Parameters, the network's state, the optimiser's state."""

    params: Parameters
    state: PyTree
    optimizer: PyTree


class PointPhase(DescentPhase):
    """Gradient descent on (−log p(D | w) − log p(w)) / N, the prior counted or not.

    ``method`` is a ``MaximumLikelihood``, or another that trains a point first.
    """

    title: ClassVar[str] = "optimising"

    def init(self, start: Start, data: Data | None, key: jax.Array) -> PointState:
        params = start.parameters
        return PointState(params, start.state, self._optimizer().init(params))

    def objective(
        self, params: Parameters, state: PyTree, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, PyTree]:
        """What is minimised, on a minibatch; its NLL, and the network's new state."""
        nll, state = batch_nll(self.model, params, state, batch, key)
        loss = self.plan.batches / self.plan.total * nll
        return loss + (self.prior(params) if self.method.with_prior else 0.0), (nll, state)

    def prior(self, params: Parameters) -> jax.Array:
        """What the prior adds to the objective."""
        return -self.model.log_prior(params) / self.plan.total

    def step(self, state: PointState, batch: Batch, key: jax.Array) -> tuple[PointState, Info]:
        grads, (nll, new_state) = jax.grad(self.objective, has_aux=True)(
            state.params, state.state, batch, key
        )
        params, optimizer = self._descend(state.params, grads, state.optimizer)
        return PointState(params, new_state, optimizer), Info({"nll": mean_nll(nll, batch)})

    def report(self, state: PointState, key: jax.Array) -> dict[str, jax.Array]:
        # a pass over all weights of its own, which the gradient has no need of
        return {"prior": self.prior(state.params)} if self.method.with_prior else {}

    def hand_over(self, state: PointState) -> Start:
        return Start(state.params, state.state, None, given=True)

    def finish(self, state: PointState, draws: Draw | None) -> Posterior:
        return Point(self.model, state.state, self.plan.targets, point=state.params)


class MaximumLikelihood(Method):
    """Maximum likelihood: one set of weights, no prior.

    Args:
        learning_rate: the step size of Adam, or an optax schedule.
        schedule: ``"cosine"`` (the rate falls to zero over the fit), ``"hold"`` (in its second
            half) or ``"constant"``.
        optimizer: any optax transformation instead of Adam.

    Example:
        >>> import posterax as px
        >>> px.MaximumLikelihood(learning_rate=1e-2)
        MaximumLikelihood(learning_rate=0.01)
    """

    learning_rate: Rate = 1e-3
    schedule: Schedule = "cosine"
    optimizer: Optimizer = None

    with_prior: ClassVar[bool] = False

    @property
    def needs(self) -> Needs:
        return Needs(elementwise=is_elementwise(self.optimizer), mixes=True, overfits=True)

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        return [PointPhase(model, plan, with_arrays(self, model))]


class MaximumAPosteriori(MaximumLikelihood):
    """Maximum a posteriori: one set of weights under the prior.

    The objective per data point is mean NLL − log p(w) / N, so the prior's weight is right
    whatever the batch size.

    Args:
        learning_rate: the step size of Adam, or an optax schedule.
        schedule: ``"cosine"`` (the rate falls to zero over the fit), ``"hold"`` (in its second
            half) or ``"constant"``.
        optimizer: any optax transformation instead of Adam.

    Example:
        >>> import posterax as px
        >>> px.MaximumAPosteriori(schedule="constant")
        MaximumAPosteriori(schedule='constant')
    """

    with_prior: ClassVar[bool] = True
