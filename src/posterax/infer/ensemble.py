r"""Deep ensembles (Lakshminarayanan et al. 2017): networks from different starts, side by side."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from .._checks import whole
from ..data import Batch, Data
from ..model import Model
from ..posteriors import Draws, Posterior
from .base import Draw, Info, Method, Phase, Plan, check_optimizer, choose
from .point import MaximumAPosteriori, MaximumLikelihood


class EnsemblePhase(Phase):
    """The phase of a point estimate, vmapped over members."""

    member: Phase
    members: int = eqx.field(static=True)

    title: ClassVar[str] = "training members"

    def init(self, previous: Any, data: Data | None, key: jax.Array) -> Any:
        def one(key: jax.Array) -> Any:
            start = previous._replace(parameters=self.model.init(key))
            return self.member.init(start, data, key)

        return jax.vmap(one)(jax.random.split(key, self.members))

    def step(self, state: Any, batch: Batch, key: jax.Array) -> tuple[Any, Info]:
        keys = jax.random.split(key, self.members)
        state, info = jax.vmap(self.member.step, in_axes=(0, None, 0))(state, batch, keys)
        return state, Info(jax.tree.map(jnp.mean, info.terms))

    def finish(self, state: Any, draws: Draw | None) -> Posterior:
        params, network_state = jax.tree.map(lambda a: a[None], (state.params, state.state))
        return Draws(self.model, network_state, self.plan.targets, draws=params, own_state=True)


class DeepEnsemble(Method):
    """M networks with different starts, trained as one program.

    Args:
        members: number of networks.
        inside: ``"map"`` (with the prior) or ``"ml"``, how each is trained.
        learning_rate: the step size of Adam.
        schedule: ``"cosine"`` or ``"constant"``.
        optimizer: any optax transformation instead of Adam.

    Example:
        >>> import posterax as px
        >>> px.DeepEnsemble(members=5).members
        5
    """

    members: int = 5
    inside: str = "map"
    learning_rate: float = 1e-3
    schedule: str = "cosine"
    optimizer: Any = None

    takes_start: ClassVar[bool] = False

    def __check_init__(self) -> None:
        whole("members", self.members)
        choose("inside", self.inside, ("map", "ml"))
        check_optimizer(self.optimizer, self.learning_rate, self.schedule)

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        inside = MaximumAPosteriori if self.inside == "map" else MaximumLikelihood
        (member,) = inside(self.learning_rate, self.schedule, self.optimizer).phases(model, plan)
        return [EnsemblePhase(model, plan, member, self.members)]
