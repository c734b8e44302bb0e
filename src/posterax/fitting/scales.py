"""Data on a scale that the prior cannot reach: told before a fit, from a thousand rows on the host.

Priors of networks are made for inputs and targets of about 0 ± 1. Nothing fails on other scales:
the fit ends, and its predictions are wrong by thousands of nats.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import PyTree

from .._util.admit import few_rows
from .._util.tree import named_leaves
from ..likelihoods.regression import known_noise
from ..model import Model
from ..priors import is_prior

# Weights from N(0, s²) and units of size 1 give outputs of s√H: 7s for 50 units, 30s for 1000. A
# target of a hundred s needs all of them at once several deviations out.
TARGETS = 100.0
# Where all targets lie within a thousandth of 0, a network of usual weights is a thousand times too
# wide, and each weight has to be known to three digits.
NARROW = 1e-3
# A unit with a weight of 1 goes from one end to the other within 1/1000 of such a column's range,
# and is constant elsewhere. Pixels of 0 to 255 and ages are below, incomes and metres above.
INPUTS = 1e3
# The part of a column in a unit is its size times its weight: at this size it cannot be seen beside
# others of size 1. By the largest entry, so that a column of rare ones is none of them.
FAINT = 1e-3
# A mean of a hundred deviations, as of years, is an offset that every unit has to take off with its
# bias before the column tells it anything. A bias of a few is within reach.
OFFSET, BIAS = 100.0, 10.0
# Noise of a hundredth of the targets' deviation is an R² of 0.9999; noise of a hundred deviations
# leaves nothing to learn. Both are rarely meant, and usually noise in other units than y.
NOISE = 100.0
CONSTANT = 1e-6  # a deviation, as a part of the mean, that is none
FEW_ENTRIES = 10_000  # arrays whose present values are looked at: biases, not matrices
UNKNOWN = 10.0  # the deviation of a prior that does not tell it: its tails are heavy
STANDARDISE = "px.BayesianRegressor does it for you"


def refuse_narrow_priors(model: Model, dtype: DTypeLike) -> None:
    """Refuse a prior whose precision overflows: its density is NaN or infinite at any weight."""
    least = float(np.sqrt(np.finfo(dtype).tiny))
    for name, prior in named_leaves(model.priors, is_leaf=is_prior).items():
        deviation = prior.deviation()
        if deviation is not None and np.min(np.asarray(deviation), initial=1.0) < least:
            narrow = float(np.min(np.asarray(deviation)))
            raise ValueError(
                f"prior: that of {name} has a deviation of {narrow:g}, and {np.dtype(dtype)} has "
                f"no precision 1/deviation² below {least:.0e}: widen it, or leave these weights "
                "out with px.Model(…, where=…, rest='frozen')"
            )


def concerns(model: Model, x: PyTree, y: Any) -> Iterator[str]:
    """What is wrong with the scale of inputs and targets, in words; nothing for sane data."""
    inputs, _ = model.likelihood.split(few_rows(x))
    # batch statistics take any scale off again
    if not jax.tree.leaves(model.network.state):
        for leaf in jax.tree.leaves(inputs):
            if leaf.dtype.kind == "f":  # whole numbers are tokens, labels or pixels
                yield from _of_inputs(leaf)
    if model.likelihood.kind == "regression":
        columns = _columns(few_rows(y))
        noise = known_noise(model.likelihood)
        said = list(_of_targets(columns, _reach(model), 0.0 if noise is None else noise))
        yield from said
        if not said and noise is not None:
            yield from _of_noise(columns, noise)


def _columns(values: np.ndarray) -> np.ndarray:
    """(rows, columns) in float64; the positions of an image or a sequence count as one column."""
    values = np.asarray(values, np.float64)
    return values.reshape(-1, 1) if values.ndim > 2 else values.reshape(len(values), -1)


def _reach(model: Model) -> float:
    """How far from 0 a weight may be: by its prior, or where it starts; 1 at least."""
    reach = 1.0
    priors = jax.tree.leaves(model.priors.network, is_leaf=is_prior)
    for prior, w in zip(priors, jax.tree.leaves(model.network.params), strict=True):
        deviation = prior.deviation()
        wide = UNKNOWN if deviation is None else float(np.max(np.asarray(deviation)))
        centre = np.asarray(getattr(prior, "loc", 0.0))
        start = np.asarray(w) if w.size <= FEW_ENTRIES else np.zeros(1)
        reach = max(reach, wide, *(float(np.max(np.abs(a), initial=0.0)) for a in (centre, start)))
    return reach


def _of_inputs(leaf: np.ndarray) -> Iterator[str]:
    columns = _columns(leaf)
    mean, deviation = columns.mean(0), columns.std(0)
    size = np.abs(columns).max(0)
    varies = deviation > CONSTANT * np.abs(mean)
    bad = {
        "is larger than weights of the prior's size can take": size > INPUTS,
        "is smaller than weights of the prior's size can see": varies & (size < FAINT),
        "lies far from 0 for how little it varies": (
            varies & (np.abs(mean) > OFFSET * deviation) & (np.abs(mean) > BIAS)
        ),
    }
    for why, where in bad.items():
        if where.any():
            i = int(np.argmax(where))
            column = f"x, column {i}," if leaf.ndim == 2 else "x"
            yield (
                f"{column} is {mean[i]:.3g} ± {deviation[i]:.2g}, which {why}: standardise it with "
                f"x = (x - x_train.mean(0)) / x_train.std(0); {STANDARDISE}"
            )
            return  # one line for all columns: the remedy is the same


def _of_targets(columns: np.ndarray, reach: float, noise: Any) -> Iterator[str]:
    mean, deviation = columns.mean(0), columns.std(0)
    far = (np.abs(mean) + deviation > TARGETS * reach) & (np.abs(mean) + deviation > noise)
    varies = deviation > CONSTANT * np.abs(mean)
    narrow = varies & (np.abs(columns).max(0) < NARROW)
    for why, where in (
        (f"beyond what a network can give whose weights are about {reach:.3g}", far),
        ("far below what a network gives whose weights are about 1", narrow),
    ):
        if where.any():
            i = int(np.argmax(where))
            column = f"y, column {i}," if columns.shape[1] > 1 else "y"
            yield (
                f"{column} is {mean[i]:.3g} ± {deviation[i]:.2g}, {why}: standardise it with "
                "y = (y - y_train.mean(0)) / y_train.std(0), and the noise with it; "
                f"{STANDARDISE}"
            )
            return


def _of_noise(columns: np.ndarray, noise: np.ndarray) -> Iterator[str]:
    each = np.sqrt(np.mean(np.square(columns.std(0)))) if noise.ndim == 0 else columns.std(0)
    noise, each = np.broadcast_arrays(noise.reshape(-1), np.reshape(each, -1))
    wrong = (each > 0) & ((noise * NOISE < each) | (noise > NOISE * each))
    if wrong.any():
        i = int(np.argmax(wrong))
        yield (
            f"noise={noise[i]:.3g} is known, and y varies by ± {each[i]:.2g}: noise is a standard "
            "deviation in the units of y; noise='learned' finds it"
        )
