r"""Monte Carlo dropout (Gal and Ghahramani 2016): dropout in training, and left on at prediction.

Dropping inputs of a layer is a distribution over its weights, W · diag(z) / (1 − p) with
zᵢ ~ Bernoulli(1 − p), and training with it is variational inference: minimise, per data point,

    F / N = mean of −log p(y | x, w) + E_q[−log p(w)] / N − Σ_layers K H(p) / N

with K inputs to a layer and H the entropy of a Bernoulli variable, which counts where p is learned
(concrete dropout). For a prior N(0, s²) the second term is weight decay, Σ ‖W‖² / (2 s² (1 − p) N).
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..._util.checks import above_zero, fraction
from ..._util.jax_names import used_arguments
from ..._util.tree import named_leaves
from ...model import Model, Parameters
from ...networks.parts import Where, select
from ...networks.sparse import pruned_weights
from ...program.input_units import InputUnits, input_units
from ..base import Method, Needs, Phase, Plan, with_arrays
from ..settings import Fraction, Optimizer, Rate, Schedule
from .dropout_phase import DropoutPhase

DEFAULT_RATE = 0.1


class MCDropout(Method):
    r"""Monte Carlo dropout: inputs of layers are dropped in training and at prediction.

    A network with dropout layers of its own is trained with them and predicts with them on, at
    their rates; nothing else is in training mode then, so batch normalisation keeps to its running
    averages. In a network without, the inputs of chosen layers are dropped, whatever library it
    comes from: in training by a mask for each example, in a posterior draw by one mask for all
    inputs, which is a set of weights. Convolutions lose input channels. A weight that is used
    several times or in a loop (a recurrent cell) has one mask for all its uses and the whole batch.

    The prior is the weight decay, with the data's N in its place; see ``weight_decay``.

    Args:
        rate: the probability p to drop an input (default: 0.1), or ``"learned"``, one for each
            layer. Networks with dropout layers of their own have theirs.
        where: the weights whose inputs are dropped, as in ``px.Model``: a pattern over names,
            several of them, or a function of (name, array). Default: every weight that is a factor
            of a product, but for those that meet the network's own inputs; ``"*"`` is all.
        initial_rate: where learned rates start.
        learning_rate: the step size of Adam, or an optax schedule.
        schedule: ``"cosine"`` (the rate falls to zero over the fit), ``"hold"`` (in its second
            half) or ``"constant"``.
        optimizer: any optax transformation instead of Adam; it sees the tree {point, logit}.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 64)[:, None].astype("float32")
        >>> network = px.networks.MLP(1, 1, (16,), key=0)
        >>> model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise=0.1))
        >>> posterior = px.fit(model, (x, x**2), px.MCDropout(rate=0.2), epochs=3, key=0)
        >>> {name: round(float(rate), 3) for name, rate in posterior.rates.items()}
        {'layers.1.weight': 0.2}
        >>> sorted(posterior.history)
        ['nll', 'prior']

    References:
        Gal and Ghahramani, *Dropout as a Bayesian approximation*, ICML 2016; for recurrent
        networks, *A theoretically grounded application of dropout in recurrent neural networks*,
        NeurIPS 2016. Gal, Hron and Kendall, *Concrete dropout*, NeurIPS 2017. Here the weights are
        those of inverted dropout, W = (1 − p) M for their M, and E_q[−log p(w)] is exact for
        every prior that factorises; draws of a posterior with learned rates have masks of 0 and 1,
        where the paper relaxes them at prediction too.
    """

    rate: Fraction | Literal["learned"] | None = None
    where: Where | None = None
    initial_rate: Fraction = 0.1
    learning_rate: Rate = 1e-2
    schedule: Schedule = "cosine"
    optimizer: Optimizer = None

    needs = Needs(overfits=True)

    def __check_init__(self) -> None:
        if isinstance(self.rate, str) and self.rate != "learned":
            raise ValueError(
                f"rate must be a number between 0 and 1 or 'learned', got {self.rate!r}"
            )

    @staticmethod
    def weight_decay(scale: float, rate: float, total: float, *, precision: float = 1.0) -> float:
        r"""λ of the weight decay λ ‖W‖² that a prior N(0, scale²) is, next to the mean loss.

        λ = 1 / (2 · scale² · (1 − rate) · total · precision) for W, the weights of inverted
        dropout (x is scaled by 1 / (1 − rate) where it is kept), as most libraries have them. Gal
        and Ghahramani's weights M = W / (1 − rate) have the same penalty, λ (1 − rate)² ‖M‖² =
        (1 − rate) ‖M‖² / (2 scale² N τ). Biases have rate 0.

        Args:
            scale: the prior's deviation s (their 1 / length-scale).
            rate: the probability p to drop an input.
            total: N, the number of data points (the sum of their weights).
            precision: τ, where the loss is ½ (y − f)² and not the negative log likelihood.

        Example:
            >>> import posterax as px
            >>> round(px.MCDropout.weight_decay(scale=1.0, rate=0.5, total=1000), 6)
            0.001
        """
        on = 1 - fraction("rate", rate, zero=True)
        scale, total = above_zero("scale", scale), above_zero("total", total)
        return 1 / (2 * scale**2 * on * total * above_zero("precision", precision))

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        chosen: dict[str, InputUnits] = {}
        if not has_dropout(model, plan.inputs):
            chosen = self._chosen(model, plan.inputs)
        elif self.rate is not None or self.where is not None:
            name = "where" if self.rate is None else "rate"
            raise ValueError(
                f"{name}: the network has dropout of its own: leave {name} out, or take dropout "
                "out of the network"
            )
        learned = self.rate == "learned" and bool(chosen)
        given = DEFAULT_RATE if self.rate is None else self.rate
        rate = jnp.asarray(self.initial_rate if isinstance(given, str) else given)
        return [
            DropoutPhase(
                model, plan, with_arrays(self, model), rate,
                {name: jnp.asarray(one.units) for name, one in chosen.items()},
                {name: jnp.asarray(float(one.inputs)) for name, one in chosen.items()},
                learned,
            )
        ]  # fmt: skip

    def _chosen(self, model: Model, inputs: PyTree) -> dict[str, InputUnits]:
        """The chosen weights with a prior that meet data in a product, by name."""
        weights = model.parameters.network

        def network(weights: PyTree, x: PyTree, state: PyTree) -> PyTree:
            own = Parameters(weights, None)
            return model.apply(own, state, x, jax.random.key(0), training=True)

        each = input_units(network, weights, inputs, model.network.state)
        uncertain = named_leaves(model.bayesian(model.parameters).network)
        possible = {
            name: units
            for name, units in zip(named_leaves(weights), each, strict=True)
            if units is not None and name in uncertain
        }
        if self.where is None:
            chosen = {name: units for name, units in possible.items() if not units.raw}
        else:
            by_name = named_leaves(select(weights, self.where))
            chosen = {name: units for name, units in possible.items() if by_name[name]}
        pruned = pruned_weights(model.network)
        if chosen and (not pruned or self.where is not None):
            return chosen
        if pruned:
            raise ValueError(
                "method: MCDropout drops inputs of whole arrays, and the network is pruned of "
                f"entries of {', '.join(pruned)}: use px.DeepEnsemble(), or where= for other arrays"
            )
        names = ", ".join(possible)
        why = "none of its weights with a prior is a factor of a product with data"
        if names:
            why = f"{names} meet its own inputs: where='*' drops them too"
        message = (
            "method: MCDropout finds no place for dropout: the network has no dropout layers, "
        )
        message += f"and {why}"
        if names and self.where is not None:
            message = f"where={self.where!r} chooses no weight whose inputs can be dropped; "
            message += f"those are {names}"
        raise ValueError(f"{message}; px.BayesByBackprop() and px.DeepEnsemble() need none")


def has_dropout(model: Model, inputs: PyTree) -> bool:
    """Whether the network's outputs depend on its key with dropout on.

    Example:
        >>> import equinox as eqx
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> from posterax.infer.ensembles.dropout import has_dropout
        >>> layers = [eqx.nn.Linear(2, 1, key=jax.random.key(0)), eqx.nn.Dropout(0.5)]
        >>> model = px.Model(eqx.nn.Sequential(layers), likelihood=px.likelihoods.Gaussian(0.1))
        >>> has_dropout(model, jnp.ones((3, 2)))
        True
    """

    def network(key: jax.Array, weights: PyTree, x: PyTree, state: PyTree) -> PyTree:
        own = Parameters(weights, None)
        return model.apply(own, state, x, key, training=False, dropout=True)[0]

    weights, state = model.parameters.network, model.network.state
    program = jax.make_jaxpr(network)(jax.random.key(0), weights, inputs, state)
    return used_arguments(program)[0]
