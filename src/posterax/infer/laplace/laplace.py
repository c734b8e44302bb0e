r"""The Laplace approximation: a Gaussian with the curvature of the log joint at its maximum.

    q(w) = N(w | w*, (H + P)⁻¹),   w* = argmax log p(D | w) + log p(w)

Three phases: w* by gradient descent (that of ``px.MaximumAPosteriori``), one pass over the data
that sums the curvature H of the negative log likelihood (see ``curvature``), and a look at some of
the data that chooses how strong the prior's P should be (see ``tuning``).
"""

import math
from typing import Literal

import jax
import numpy as np

from ..._util.memory import refuse_beyond_memory
from ..._util.tree import abstract_rows, dtype_of, named_leaves
from ...model import Model
from ...networks.parts import Where
from ...networks.sparse import pruned_weights
from ...priors import Gaussian, Prior, is_prior
from ..base import Method, Needs, Phase, Plan
from ..objective import need_prior
from ..points.point import MaximumAPosteriori
from ..settings import Flag, Optimizer, Rate, Runs, Schedule
from .curvature import Block, layout
from .passes import PRECISIONS, CurvaturePhase, Precision
from .tuning import TuningPhase

FULL = 1000  # structure="auto": up to so many weights the whole matrix costs less than the fit


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
            ``"per_array"``: a factor for each array; ``"auto"``: one factor, that of the evidence
            or larger, chosen by predictions (see ``infer/laplace/tuning.py``), while the evidence
            stays that of the model's own prior. All for Gaussian priors only; with others
            ``"auto"`` is ``"fixed"``.
        layer: which weights ``"last_layer"`` means, as in ``px.Model(where=…)``; by default those
            of the last product in the network's program.
        train: with ``False`` w* is where the fit starts, at ``init=`` or the network's own
            weights, and only the curvature is computed.
        probes: random vectors for each example where the Fisher information has no closed form
            (``px.likelihoods.From``) or more than 128 columns.
        learning_rate: the step size of Adam, or an optax schedule.
        schedule: ``"cosine"`` (the rate falls to zero over the fit), ``"hold"`` (in its second
            half) or ``"constant"``.
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
    prior_precision: Precision = "auto"
    layer: Where | None = None
    train: Flag = True
    probes: Runs = 16
    learning_rate: Rate = 1e-2
    schedule: Schedule = "cosine"
    optimizer: Optimizer = None

    def __check_init__(self) -> None:
        if self.layer is not None and self.structure != "last_layer":
            raise ValueError("layer is for structure='last_layer'; leave it out, or choose that")

    @property
    def needs(self) -> Needs:
        """Epochs of training; without it there is one pass over the data, and nothing to count."""
        return Needs("epochs" if self.train else "nothing", overfits=self.train)

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
        tuned = self.prior_precision == "auto" and self._other_prior(model, blocks) is None
        precision = "fixed" if self.prior_precision == "auto" else self.prior_precision
        last: list[Phase] = [
            CurvaturePhase(
                model, plan, blocks, self.probes, linearised,
                np.asarray(PRECISIONS.index(precision)),
            )
        ]  # fmt: skip
        if tuned:
            last.append(TuningPhase(model, plan, blocks, linearised))
        if not self.train:
            return last
        training = MaximumAPosteriori(self.learning_rate, self.schedule, self.optimizer)
        return [*training.phases(model, plan), *last]

    def _check_priors(self, model: Model, blocks: tuple[Block, ...]) -> None:
        """A factor for the precision needs priors that have one."""
        other = self._other_prior(model, blocks)
        if self.prior_precision not in ("auto", "fixed") and other is not None:
            name, prior = other
            raise ValueError(
                f"prior_precision={self.prior_precision!r} needs Gaussian priors, and that of "
                f"{name} is {type(prior).__name__}: use px.priors.Gaussian, or 'fixed'"
            )

    def _other_prior(self, model: Model, blocks: tuple[Block, ...]) -> tuple[str, Prior] | None:
        """The first weight of the blocks whose prior is not Gaussian."""
        count = len(jax.tree.leaves(model.parameters.network))
        priors = list(named_leaves(model.priors, is_leaf=is_prior).items())
        inside = (priors[i] for block in blocks for i in block.leaves if i < count)
        return next((one for one in inside if not isinstance(one[1], Gaussian)), None)
