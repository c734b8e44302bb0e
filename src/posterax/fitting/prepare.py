"""Before anything compiles: data, model and options are checked against each other."""

import dataclasses
import warnings
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._util.admit import cast, check_finite, warn_of_rounding
from .._util.checks import MOST, above_zero, check_steps, whole_number
from .._util.tree import named_leaves, tree_bytes, tree_size
from ..augment import as_augment, check_augment
from ..data import (
    Data,
    Padded,
    Stream,
    as_stream,
    bucket,
    check_weights,
    float_dtype,
    is_batches,
    least_weight,
    pad_rows,
    unpack,
)
from ..infer.base import Method, Phase, Plan
from ..infer.settings import refuse_copies
from ..model import Model
from ..networks.base import module_of
from ..predictive import Targets
from ..priors import is_prior
from .bounds import first_steps
from .scales import concerns, refuse_narrow_priors

DEFAULT_BATCH = 128
DEFAULT_EPOCHS = 100
LEAST_STEPS = 2000  # small data have few batches: benchmarks/defaults.py
SHARED_ROWS = 2**14  # up to so many, data of similar size share one compiled program


class Asked(NamedTuple):
    """How long a fit is to learn, as the user says it."""

    epochs: Any = None  # a number, or "auto"
    steps: int | None = None
    batch_size: int | None = None
    time_limit: float | None = None
    resumed: bool = False
    validation: Any = None


class Prepared(NamedTuple):
    """A fit that can start."""

    model: Model
    data: Data | None  # None for a stream
    stream: Stream | None
    plan: Plan
    phases: list[Phase]
    augment: Any = None
    auto: bool = False  # whether it goes on until the ELBO has settled
    told: Mapping[str, Any] = MappingProxyType({})  # of how the length was chosen, for the record

    @property
    def batch_size(self) -> int:
        """Examples in a minibatch, its padding not counted."""
        size = self.plan.batch_size
        return size if self.data is None else min(size, int(self.data.count))


def prepare(model: Model, data: Any, method: Method, asked: Asked, augment: Any = None) -> Prepared:
    """Check everything, put the data on the device, and ask the method for its phases."""
    check_method(model, method)
    augment, room = as_augment(augment), 0
    if isinstance(data, Padded):
        data, room = data.data, data.room
    if isinstance(data, Stream) or not isinstance(data, tuple | list) or is_batches(data):
        return _prepare_stream(model, data, method, asked, augment)
    return _prepare_arrays(model, data, room, method, asked, augment)


def check_model(model: Any) -> None:
    """Refuse what is no model."""
    if not isinstance(model, Model):
        raise TypeError(
            f"model must be a px.Model(network, prior, likelihood), got {type(model).__name__}"
        )


def check_method(model: Any, method: Any) -> None:
    """Refuse what is no model or method, and weights that this method cannot have."""
    check_model(model)
    if not isinstance(method, Method):
        hint = "; call it: px.BayesByBackprop()" if isinstance(method, type) else ""
        raise TypeError(
            f"method must be an inference method such as px.BayesByBackprop(), got "
            f"{getattr(method, '__name__', type(method).__name__)}{hint}"
        )
    refuse_copies(method, tree_bytes(model.parameters))
    name, needs = type(method).__name__, method.needs
    if needs.no_points is not None and model.bayesian_size < tree_size(model.parameters):
        raise ValueError(f"method: {name} {needs.no_points}")
    grids = [name for name, p in named_leaves(model.priors, is_leaf=is_prior).items() if p.discrete]
    if grids and not needs.discrete:
        raise ValueError(
            f"method: {name} needs a density, and the prior of {grids[0]} is a "
            "px.priors.Grid, whose weights take finitely many values: use px.BlackBoxVI, "
            "px.Enumeration, px.ImportanceSampling or px.Metropolis"
        )


def _prepare_arrays(
    model: Model, data: Any, room: int, method: Method, asked: Asked, augment: Any
) -> Prepared:
    x, y, weight = unpack(data)
    check_finite("x", x)
    check_finite("y", y)
    inner = model.check(x, y)
    n, dtype = len(y), float_dtype(x, model.network.params)
    check_weights(least_weight(weight), float(np.sum(weight)), dtype)
    held_x, held_y = jax.tree.map(lambda a: cast(a, dtype), x), cast(y, dtype, "y")
    _tell_of_rounding(x, y, dtype)
    _tell_of_scales(model, x, y, dtype)
    model = model.for_data(np.asarray(y).reshape(n, *inner), weight).for_targets(inner, dtype)
    # a network with state (batch statistics) would see the padding of a full batch
    stateful = bool(jax.tree.leaves(model.network.state))
    most = max(n, room)
    shared = n <= SHARED_ROWS and not stateful
    rows = max(bucket(n) if shared else n, most)

    if rows > MOST - rows:  # a place in the shuffled data is a number of 32 bits
        raise ValueError(f"data: {most} rows are too many for arrays: stream them in batches")
    size = _batch_size(asked.batch_size, most, method, augment)
    if size == most:
        size = n if stateful else rows
    targets = Targets(tuple(int(d) for d in np.shape(y)[1:]), inner)
    auto = _until_settled(method, asked)
    if auto:
        weights = tree_size(model.parameters)
        asked = asked._replace(epochs=None, steps=first_steps(-(-n // size), weights))
    plan = _plan(np.sum(weight), -(-n // size), size, method, asked, targets)
    plan = dataclasses.replace(plan, inputs=_shapes(x, size, dtype))
    check_augment(augment, plan.inputs, inner, module_of(model.network))
    if stateful and plan.batch_size == n:
        rows = n
    on_device = Data(
        jax.tree.map(lambda a: jnp.asarray(pad_rows(a, rows)), held_x),
        jnp.asarray(pad_rows(held_y, rows).reshape(rows, *inner)),
        jnp.asarray(np.concatenate([weight, np.zeros(rows - n)]).astype(dtype)),
        jax.device_put(np.int32(n)),
        augment,
    )
    return Prepared(model, on_device, None, plan, method.phases(model, plan), augment, auto)


def _until_settled(method: Method, asked: Asked) -> bool:
    """Whether the fit is to go on until its ELBO has settled; or why it cannot."""
    patient = getattr(asked.validation, "patience", None) is not None
    if asked.time_limit is not None:
        above_zero("time_limit", asked.time_limit)
    named = asked.epochs == "auto" if isinstance(asked.epochs, str) else False
    if isinstance(asked.epochs, str) and not named:
        raise ValueError(f"epochs must be a number or 'auto', got {asked.epochs!r}")
    if named and asked.steps is not None:
        raise ValueError("give epochs or steps, not both")
    free = asked.epochs is None and asked.steps is None
    can = method.needs.anytime and not asked.resumed and not patient
    if named and not can:
        raise ValueError(f"epochs='auto': {_no_auto(method, asked, patient)}; give epochs=")
    if asked.time_limit is not None and not (can and (named or free)):
        why = _no_auto(method, asked, patient) if not can else "epochs or steps are given"
        raise ValueError(f"time_limit goes with epochs='auto': {why}")
    return can and (named or free)


def _no_auto(method: Method, asked: Asked, patient: bool) -> str:
    if asked.resumed:
        return "resume= goes on with a fit of a given length"
    if patient:
        return "validation with patience= ends the fit in its own way"
    if method.needs.overfits:  # where they can, ``fit`` has the length already
        return "held-out rows choose how long, and that takes 50 rows, as arrays, and no init="
    return (
        f"{type(method).__name__} does not go by an ELBO with a rate that is held and then falls, "
        "as px.BayesByBackprop() and px.IVON() do"
    )


def _tell_of_rounding(x: PyTree, y: Any, dtype: Any) -> None:
    for name, tree in (("x", x), ("y", y)):
        warn_of_rounding(name, tree, dtype, stacklevel=6)  # where px.fit is called


def _tell_of_scales(model: Model, x: PyTree, y: Any, dtype: Any) -> None:
    refuse_narrow_priors(model, dtype)
    for text in concerns(model, x, y):
        warnings.warn(text, stacklevel=5)  # where px.fit is called


def _shapes(x: Any, rows: int, dtype: Any) -> PyTree[jax.ShapeDtypeStruct]:
    """A minibatch of the inputs, by shape and type on the device."""

    def one(a: Any) -> jax.ShapeDtypeStruct:
        own = dtype if jnp.issubdtype(a.dtype, jnp.floating) else a.dtype
        return jax.ShapeDtypeStruct((rows, *a.shape[1:]), jax.dtypes.canonicalize_dtype(own))

    return jax.tree.map(one, x)


def _prepare_stream(
    model: Model, data: Any, method: Method, asked: Asked, augment: Any
) -> Prepared:
    data = as_stream(data)
    if asked.epochs == "auto" or asked.time_limit is not None:
        raise ValueError("epochs='auto': a source of batches is not evaluated; give epochs=")
    if method.needs.all_data:
        raise ValueError(
            f"data: {_name(method)} needs all data at each step and cannot stream batches; pass "
            f"arrays, or use {method.needs.instead}"
        )
    if asked.batch_size is not None and asked.batch_size != data.batch_size:
        raise ValueError(
            f"batch_size={asked.batch_size}, but the source's batches have {data.batch_size} "
            "rows: leave batch_size out"
        )
    x, y = data.example
    inner, outputs = model.check(x, y), model.output_shape(x)
    for values in data.targets():
        model.likelihood.check_values(values, outputs)
    dtype = float_dtype(x, model.network.params)
    check_weights(data.least, data.total, dtype)
    _tell_of_rounding(data.few[0], data.few[1], dtype)
    _tell_of_scales(model, data.few[0], data.few[1], dtype)
    shapes = _shapes(x, data.batch_size, dtype)
    check_augment(augment, shapes, inner, module_of(model.network))
    few = np.asarray(data.few[1])
    few = few.reshape(len(few), *inner)
    model = model.for_data(few, np.ones(len(few))).for_targets(inner, dtype)
    targets = Targets(tuple(int(d) for d in np.shape(y)[1:]), inner)
    plan = _plan(data.total, data.batches, data.batch_size, method, asked, targets)
    plan = dataclasses.replace(plan, inputs=shapes)
    return Prepared(model, None, data, plan, method.phases(model, plan), augment)


def _name(method: Method) -> str:
    """A method with its settings, where they are not the usual ones."""
    return repr(method).removesuffix("()")


def _batch_size(batch_size: int | None, n: int, method: Method, augment: Any) -> int:
    all_data = method.needs.all_data
    if augment is not None and all_data:
        raise ValueError(
            f"augment: {_name(method)} needs the same data at each step; leave augment "
            f"out, or use {method.needs.instead}"
        )
    if batch_size is None:
        return n if all_data else min(n, DEFAULT_BATCH)
    size = whole_number("batch_size", batch_size)
    if all_data and size != n:
        raise ValueError(
            f"batch_size={size}: {_name(method)} uses all {n} examples at each "
            "step; leave batch_size out"
        )
    if size > n:
        raise ValueError(f"batch_size={size} is larger than the data, {n} examples")
    return size


def _plan(
    total: Any, batches: int, size: int, method: Method, asked: Asked, targets: Targets
) -> Plan:
    name, needs = type(method).__name__, method.needs
    epochs, steps = asked.epochs, asked.steps
    if epochs is not None and steps is not None:
        raise ValueError("give epochs or steps, not both")
    if needs.counts == "nothing":
        given_one = "epochs" if epochs is not None else "steps"
        if epochs is not None or steps is not None:
            raise ValueError(f"{given_one}: {name} goes through everything once; leave it out")
        steps = 1
    if epochs is not None and needs.counts == "steps":
        raise ValueError(f"{name} counts steps (retained draws per chain), not epochs: use steps=")
    if steps is None and needs.counts == "steps":
        steps = needs.steps
    elif steps is None:
        passes = above_zero("epochs", DEFAULT_EPOCHS if epochs is None else epochs)
        said = f"epochs={passes:g} of {batches} batches"
        least = LEAST_STEPS if epochs is None else 1
        steps = check_steps(max(least, round(passes * batches)), said)
    return Plan(
        jax.device_put(np.asarray(total, jnp.result_type(float))),
        jax.device_put(np.int32(batches)),
        jax.device_put(np.int32(whole_number("steps", steps))),
        size,
        targets,
        all_data=needs.all_data,
    )
