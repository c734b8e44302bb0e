"""From the arguments of an estimator to a network, a prior and a method: the defaults live here.

They were chosen on validation splits; docs/tables.md has the study.
"""

import dataclasses
import inspect
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import infer, priors
from .._methods import ESTIMATOR_METHODS, METHODS, method_name
from .._util.checks import above_zero, check_steps, whole_number
from ..infer import BayesByBackprop, DeepEnsemble, Method

DEGREES = 8.0  # of freedom, of the noise in regression
LEARNING_RATE = 1e-2
INITIAL_RHO = -4.0
FULL_BATCH = 300  # rows up to which every step sees all of them
BATCH = 256
STEPS = (2000, 8000)  # for 50 rows and fewer, for 200 and more
EPOCHS = 50  # at least
PARTS = (0.75, 0.5)  # of the steps, before and after the intervals' width is measured
DEFAULT = "bayes_by_backprop"
# methods that take LEARNING_RATE by default, not their own
AT_OUR_RATE = ("mc_dropout", "maximum_a_posteriori", "maximum_likelihood")


def make_method(
    method: str | Method, learning_rate: float | None, members: int, temperature: Any
) -> Method:
    """A method by name with the estimators' own settings, or the user's object as it is."""
    if isinstance(method, Method):
        if learning_rate is not None:
            raise ValueError(
                "learning_rate: the method is an object with settings of its own; give it to "
                f"{type(method).__name__}(learning_rate=…)"
            )
        return method
    rate = LEARNING_RATE if learning_rate is None else above_zero("learning_rate", learning_rate)
    name = method_name(method) if isinstance(method, str) else ""
    if name not in ESTIMATOR_METHODS:
        raise ValueError(
            f"method must be one of {', '.join(map(repr, ESTIMATOR_METHODS))} or a method such as "
            f"px.BayesByBackprop(), got {method!r}"
        )
    if name == DEFAULT:
        return _variational(rate, whole_number("members", members), temperature)
    if name == "deep_ensemble":
        return DeepEnsemble(members, learning_rate=rate)
    kind = getattr(infer, METHODS[name][0])
    takes_rate = "learning_rate" in inspect.signature(kind).parameters
    if name in AT_OUR_RATE or (takes_rate and learning_rate is not None):
        return kind(learning_rate=rate)
    return kind()


def _variational(rate: float, members: int, temperature: Any) -> Method:
    """Bayes by Backprop for one network, or for several on a ladder of temperatures."""
    try:
        cold, warm = (temperature, temperature) if np.ndim(temperature) == 0 else temperature
        ends = above_zero("temperature", warm), above_zero("temperature", cold)
    except (TypeError, ValueError):
        raise ValueError(
            "temperature must be a number above 0, or a pair (coldest, warmest) of them, got "
            f"{temperature!r}"
        ) from None
    inside = BayesByBackprop(
        learning_rate=rate, initial_rho=INITIAL_RHO, rho_rate=1.0, estimator="weight",
        schedule="cosine",
    )  # fmt: skip
    if members == 1:
        return dataclasses.replace(inside, temperature=ends[0])  # alone, the cautious one
    return DeepEnsemble(members, inside, tuple(np.geomspace(*ends, members).tolist()))


def default_prior(classes: bool, method: str | Method) -> priors.Prior:
    """Widths that are learned for the default method, and fixed ones for all others.

    One width is learned for each layer, in regression one for each input of each layer. Around a
    mode that degenerates: n weights with a width in common have the density
    (1 + ‖w‖² / 2b) to the power −(a + n/2), a peak at 0 that wins where the data hold the weights
    less fast, and then every row gets the same answer. A mean-field Gaussian at temperature 1 ends
    there too; at the default's temperatures the data count twice or more, and hold them.

    Of the fixed ones N(0, 1) lets logits grow as they have to. In regression, where the noise is
    predicted too, it fits noise, and N(0, 1 / fan-in) does not.
    """
    if isinstance(method, str) and method_name(method) == DEFAULT:
        return priors.Hierarchical(1.0, 1.0, relevance=not classes)
    return priors.Gaussian(1.0, fan_in=not classes)


def layer_sizes(hidden_layer_sizes: int | ArrayLike | None, n: int) -> tuple[int, ...]:
    """The widths of the hidden layers; more data carry a second layer, and wider ones."""
    if hidden_layer_sizes is None:
        return (50,) if n <= 2_000 else (50, 50) if n <= 10_000 else (100, 100)
    sizes = np.atleast_1d(np.asarray(hidden_layer_sizes, object)).tolist()
    return tuple(whole_number("hidden_layer_sizes", size) for size in sizes)


def make_budget(
    method: Method, n: int, epochs: float | str | None, steps: int | None,
    batch_size: int | None, share: float = 1.0,
) -> dict[str, Any]:  # fmt: skip
    """How long to learn, as ``px.fit`` takes it; small tables in full batches.

    ``share`` is the part of the steps that this fit is to take.
    """
    steps = None if steps is None else whole_number("steps", steps)
    if isinstance(epochs, str):
        _check_auto(method, epochs)
    elif epochs is not None:
        epochs = above_zero("epochs", epochs)
    if batch_size is not None:
        batch_size = min(whole_number("batch_size", batch_size), n)
    elif not method.needs.all_data:
        batch_size = n if n <= FULL_BATCH else BATCH
    if epochs is None and steps is None and method.needs.counts == "epochs":
        batches = -(-n // batch_size) if batch_size else 1
        steps = max(int(np.clip(40 * n, *STEPS)), EPOCHS * batches)
    if share != 1:
        steps = None if steps is None else max(1, round(share * steps))
        epochs = epochs if epochs is None or isinstance(epochs, str) else share * epochs
    return {"epochs": epochs, "steps": steps, "batch_size": batch_size}


def _check_auto(method: Method, epochs: str) -> None:
    if epochs != "auto":
        raise ValueError(f"epochs must be a number or 'auto', got {epochs!r}")
    if not method.needs.anytime:
        raise ValueError(
            "epochs='auto' needs a method that can go on until its ELBO has settled, such as "
            f"method='ivon' or method=px.BayesByBackprop(), got {type(method).__name__}; give "
            "epochs a number"
        )


def in_steps(method: Method, n: int, budget: dict[str, Any]) -> dict[str, Any]:
    """The same budget with its length as a number of steps, where it has one.

    Example:
        >>> import posterax as px
        >>> from posterax.tables.settings import in_steps
        >>> budget = {"epochs": 3, "steps": None, "batch_size": 100}
        >>> in_steps(px.MaximumAPosteriori(), 450, budget)
        {'epochs': None, 'steps': 15}
    """
    epochs, steps = budget["epochs"], budget["steps"]
    counts = method.needs.counts
    if steps is None and epochs is None and counts == "steps":
        steps = method.needs.steps
    elif steps is None and counts == "epochs" and isinstance(epochs, float | int):
        passes, batches = epochs, -(-n // (budget["batch_size"] or n))
        steps = check_steps(max(1, round(passes * batches)), f"epochs={passes:g}")
        epochs = None
    return {"epochs": epochs, "steps": steps}
