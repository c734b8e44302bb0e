r"""Black-box variational inference (Ranganath, Gerrish and Blei 2014): the score-function gradient.

Minimise, per data point, minus the evidence lower bound

    F(λ) = E_q[f(w)],  f(w) = −log p(D | w) − log p(w) + log q(w | λ)

by ∇F = E_q[f(w) ∇_λ log q(w | λ)]. Nothing is differentiated but log q: any family with draws and
a log density will do, discrete ones among them. The price is variance, which ``score_function``
brings down.
"""

import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import Any

from ..._util.checks import one_of, whole_number
from ..._util.fingerprint import settings_fingerprint
from ...model import Model
from ...posteriors.factors import OwnFamily, check_family, check_hashable
from ..base import Method, Needs, Phase, Plan, with_arrays
from ..objective import check_optimizer
from .black_box_phase import BlackBoxPhase


class BlackBoxVI(Method):
    r"""Variational inference by the score-function gradient, for any family, also discrete ones.

    f is evaluated and never differentiated, so that weights may be discrete: with a
    [`px.priors.Grid`][posterax.priors.Grid] they are Bernoulli or categorical. For Gaussian weights
    ``px.BayesByBackprop`` has the same optimum and a gradient of far less variance.

    Args:
        family: ``"auto"``: weights with a grid prior are categorical over its values, all others
            Gaussian with σ = softplus(ρ), and those without a prior points, trained by the
            ordinary gradient. Or an object with ``init(prior, w)``, ``sample(key, variational)``
            and ``log_prob(variational, w)``, applied array by array.
        samples: weight samples per step, 2 or more, whose spread tells the gradient's variance.
        baseline: what is taken off f to lower the variance: ``"leave_one_out"``, the mean of the
            other samples; ``"control_variate"``, for each variational parameter the best multiple
            of its score, by running averages over earlier steps; or ``None``.
        rao_blackwell: leave out of a factor's f the prior and entropy terms of other factors.
        kl: ``"monte_carlo"``, as part of f (the paper's), whose noise cancels some of the
            likelihood's near the optimum; or ``"auto"``, closed form where there is one.
        kl_weights: how minibatch i of M shares the KL: ``"uniform"`` 1/M, ``"blundell"``
            2^(M−i)/(2^M−1), or a function of (i, M) whose values sum to 1.
        temperature: weight of the KL; 1 is the posterior, below 1 a colder one.
        kl_warmup: epochs over which the KL's weight grows from 0.
        initial_rho: where ρ of Gaussian factors starts.
        learning_rate: the step size of Adam.
        schedule: ``"cosine"`` (the rate falls to zero over the fit) or ``"constant"``.
        optimizer: any optax transformation instead of Adam; it sees the tree {mu, rho, logits}, or
            {mu, own} with a family of your own.

    The history has ``gradient_variance``: the mean over all variational parameters of the variance
    of a step's gradient, as its samples tell it.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.array([[1.0, 0.2], [-0.5, 1.0], [0.3, -0.8]], "float32")
        >>> network = {"w": np.ones((2, 1), "float32")}, lambda p, x: x @ p["w"]
        >>> model = px.Model(network, px.priors.Grid([-1, 1]), px.likelihoods.Gaussian(0.5))
        >>> method = px.BlackBoxVI(samples=8, learning_rate=0.1)
        >>> posterior = px.fit(model, (x, x[:, :1] - x[:, 1:]), method, steps=200, key=0)
        >>> posterior.marginals().network["w"][:, 0, 1].round().tolist()  # P(w = 1): the signs
        [1.0, 0.0]

    Reference:
        Ranganath, Gerrish and Blei, *Black box variational inference*, AISTATS 2014. The paper
        estimates the control variate's coefficient from the step's own samples, at the price of a
        bias; the leave-one-out baseline is of Kool, van Hoof and Welling, *Buy 4 REINFORCE samples,
        get a baseline for free!*, ICLR 2019 workshop.
    """

    family: Any = "auto"
    samples: int = 10
    baseline: str | None = "leave_one_out"
    rao_blackwell: bool = True
    kl: str = "monte_carlo"
    kl_weights: str | Callable[..., Any] = "uniform"
    temperature: float = 1.0
    kl_warmup: float = 0.0
    initial_rho: float = -3.0
    learning_rate: float = 1e-2
    schedule: str = "cosine"
    optimizer: Any = None

    @property
    def needs(self) -> Needs:
        return Needs(discrete=True)

    def __check_init__(self) -> None:
        if self.family != "auto" and (
            isinstance(self.family, type) or not isinstance(self.family, OwnFamily)
        ):
            raise TypeError(
                "family must be 'auto' or an object with init(prior, w), sample(key, variational) "
                f"and log_prob(variational, w), got {self.family!r}"
            )
        check_hashable(self.family)
        if self.baseline is not None:
            one_of("baseline", self.baseline, ("leave_one_out", "control_variate"))
        one_of("kl", self.kl, ("auto", "monte_carlo"))
        if not callable(self.kl_weights):
            one_of("kl_weights", self.kl_weights, ("uniform", "blundell"))
        if whole_number("samples", self.samples) < 2:
            why = " and the leave-one-out baseline" if self.baseline == "leave_one_out" else ""
            raise ValueError(
                f"samples must be 2 or more, got 1: the gradient's variance{why} is of several "
                "samples; px.BayesByBackprop can do with one, where weights are Gaussian"
            )
        if not isinstance(self.initial_rho, numbers.Real) or not math.isfinite(self.initial_rho):
            raise ValueError(f"initial_rho must be a finite number, got {self.initial_rho!r}")
        if not self.temperature >= 0:
            raise ValueError(f"temperature must be 0 or more, got {self.temperature!r}")
        if not self.kl_warmup >= 0:
            raise ValueError(f"kl_warmup must be 0 epochs or more, got {self.kl_warmup!r}")
        check_optimizer(self.optimizer, self.learning_rate, self.schedule)

    def identity(self) -> str:
        if self.family == "auto":
            return repr(self)
        own, kind = self.family, type(self.family)
        # the repr of any object is its address, which the next process does not know
        shown = getattr(own, "__dict__", {}) if kind.__repr__ is object.__repr__ else own
        return (
            f"{dataclasses.replace(self, family='auto')!r} {kind.__module__}.{kind.__qualname__} "
            f"{settings_fingerprint(shown)}"
        )

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        if not model.bayesian_size:
            raise ValueError(
                "method: BlackBoxVI needs weights with a prior, and this model has none: use "
                "px.MaximumLikelihood()"
            )
        if self.family != "auto":
            check_family(self.family, model)
        return [BlackBoxPhase(model, plan, with_arrays(self, model))]
