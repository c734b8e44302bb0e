"""Before anything compiles: data, model and options are checked against each other."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.checks import above_zero, whole_number
from .._util.tree import named_leaves, same_structure, tree_size
from ..augment import as_augment, check_augment
from ..data import Data, Padded, Stream, bucket, cast, check_finite, float_dtype, pad_rows, unpack
from ..infer.base import Method, Plan, Start
from ..infer.variational.bayes_by_backprop import BayesByBackprop
from ..model import Model, Parameters
from ..networks import Network, as_network
from ..networks.base import module_of
from ..networks.sparse import same_places
from ..posteriors import Posterior
from ..predictive import Targets
from ..priors import is_prior

DEFAULT_BATCH = 128
DEFAULT_EPOCHS = 100
SHARED_ROWS = 2**14  # up to so many, data of similar size share one compiled program


class Prepared(NamedTuple):
    """A fit that can start."""

    model: Model
    data: Data | None  # None for a stream
    stream: Stream | None
    plan: Plan
    augment: Any = None

    @property
    def batch_size(self) -> int:
        """Examples in a minibatch, its padding not counted."""
        size = self.plan.batch_size
        return size if self.data is None else min(size, int(self.data.count))


def prepare(
    model: Model,
    data: Any,
    method: Method,
    epochs: float | None,
    steps: int | None,
    batch_size: int | None,
    augment: Any = None,
) -> Prepared:
    """Check everything and put the data on the device."""
    if not isinstance(model, Model):
        raise TypeError(
            f"model must be a px.Model(network, prior, likelihood), got {type(model).__name__}"
        )
    if not isinstance(method, Method):
        hint = "; call it: px.BayesByBackprop()" if isinstance(method, type) else ""
        raise TypeError(
            f"method must be an inference method such as px.BayesByBackprop(), got "
            f"{getattr(method, '__name__', type(method).__name__)}{hint}"
        )
    if model.likelihood.kind not in method.kinds:
        raise ValueError(
            f"method: {type(method).__name__} cannot do {model.likelihood.kind}, only "
            f"{' and '.join(method.kinds)}; use for instance px.BayesByBackprop()"
        )
    augment = as_augment(augment)
    if augment is not None and method.full_batch:
        raise ValueError(
            f"augment: {method.label()} needs the same data at each step; leave augment "
            "out, or use px.BayesByBackprop"
        )
    if not method.takes_points and model.bayesian_size < tree_size(model.parameters):
        raise ValueError(
            f"method: {type(method).__name__} samples, and cannot train weights that have no "
            "prior: give the model rest='frozen', trained before if need be"
        )
    grids = [name for name, p in named_leaves(model.priors, is_leaf=is_prior).items() if p.discrete]
    if grids and not method.takes_discrete:
        raise ValueError(
            f"method: {type(method).__name__} needs a density, and the prior of {grids[0]} is a "
            "px.priors.Grid, whose weights take finitely many values: use px.BlackBoxVI, "
            "px.Enumeration, px.ImportanceSampling or px.Metropolis"
        )
    held = 0
    if isinstance(data, Padded):
        data, held = data.data, data.room
    if isinstance(data, Stream) or not isinstance(data, tuple | list) or is_batches(data):
        return _prepare_stream(model, data, method, epochs, steps, batch_size, augment)

    x, y, weight = unpack(data)
    check_finite("x", x)
    check_finite("y", y)
    inner = model.check(x, y)
    n = len(y)
    dtype = float_dtype(x, model.network.params)
    model = model.for_targets(inner, dtype)
    held = max(n, held)
    size = _batch_size(batch_size, held, method)
    check_augment(augment, _shapes(x, size, dtype), inner, module_of(model.network))
    # a network with state (batch statistics) would see the padding of a full batch
    if size == held and jax.tree.leaves(model.network.state):
        size = held = n
    batches = -(-n // size)
    shared = n <= SHARED_ROWS and not jax.tree.leaves(model.network.state)
    room = max(bucket(n) if shared else n, held)
    rows = Data(
        jax.tree.map(lambda a: jnp.asarray(pad_rows(cast(a, dtype), room)), x),
        jnp.asarray(pad_rows(cast(y, dtype), room)).reshape(room, *inner),
        jnp.asarray(np.concatenate([weight, np.zeros(room - n)]), dtype),
        jnp.asarray(n, jnp.int32),
        augment,
    )
    size = room if size == held else size
    plan = _plan(np.sum(weight), batches, size, method, epochs, steps, np.shape(y)[1:], inner)
    plan = dataclasses.replace(plan, inputs=_shapes(x, size, dtype))
    return Prepared(model, rows, None, plan, augment)


def _shapes(x: Any, rows: int, dtype: Any) -> Any:
    """A minibatch of the inputs, by shape and type on the device."""

    def one(a: Any) -> jax.ShapeDtypeStruct:
        kept = dtype if np.issubdtype(np.dtype(a.dtype), np.floating) else a.dtype
        return jax.ShapeDtypeStruct((rows, *a.shape[1:]), jax.dtypes.canonicalize_dtype(kept))

    return jax.tree.map(one, x)


def is_batches(data: Any) -> bool:
    """A list or tuple of (x, y) tuples is a source of batches, not one data set."""
    return isinstance(data, list) and all(isinstance(part, tuple | list) for part in data)


def _prepare_stream(
    model: Model, data: Any, method: Method, epochs: Any, steps: Any, batch_size: Any, augment: Any
) -> Prepared:
    if not isinstance(data, Stream):
        if not hasattr(data, "__iter__") or isinstance(data, dict | str | np.ndarray | jax.Array):
            raise TypeError(
                "data must be (x, y), (x, y, weight) or a re-iterable source of such batches, "
                f"got {type(data).__name__}"
            )
        data = Stream(data)
    if method.full_batch:
        streams = "px.SGHMC or px.BayesByBackprop"
        instead = "objective='elbo'" if isinstance(method, BayesByBackprop) else streams
        raise ValueError(
            f"data: {method.label()} needs all data at each step and cannot stream "
            f"batches; pass arrays, or use {instead}"
        )
    if batch_size is not None and batch_size != data.batch_size:
        raise ValueError(
            f"batch_size={batch_size}, but the source's batches have {data.batch_size} rows: "
            "leave batch_size out"
        )
    x, y = data.example
    inner = model.check(x, y, data.targets())
    dtype = float_dtype(x, model.network.params)
    shapes = _shapes(x, data.batch_size, dtype)
    check_augment(augment, shapes, inner, module_of(model.network))
    model = model.for_targets(inner, dtype)
    plan = _plan(
        data.total, data.batches, data.batch_size, method, epochs, steps, np.shape(y)[1:], inner
    )
    plan = dataclasses.replace(plan, inputs=shapes)
    return Prepared(model, None, data, plan, augment)


def _batch_size(batch_size: int | None, n: int, method: Method) -> int:
    if batch_size is None:
        return n if method.full_batch else min(n, DEFAULT_BATCH)
    size = whole_number("batch_size", batch_size)
    if method.full_batch and size != n:
        raise ValueError(
            f"batch_size={size}: {method.label()} uses all {n} examples at each "
            "step; leave batch_size out"
        )
    if size > n:
        raise ValueError(f"batch_size={size} is larger than the data, {n} examples")
    return size


def _plan(
    total: Any,
    batches: int,
    size: int,
    method: Method,
    epochs: float | None,
    steps: int | None,
    given: tuple[int, ...],
    inner: tuple[int, ...],
) -> Plan:
    name = type(method).__name__
    if epochs is not None and steps is not None:
        raise ValueError("give epochs or steps, not both")
    if method.counts == "nothing":
        given_one = "epochs" if epochs is not None else "steps"
        if epochs is not None or steps is not None:
            raise ValueError(f"{given_one}: {name} goes through everything once; leave it out")
        steps = 1
    if epochs is not None and method.counts == "steps":
        raise ValueError(f"{name} counts steps (retained draws per chain), not epochs: use steps=")
    if steps is None and method.counts == "steps":
        steps = method.default_steps
    elif steps is None:
        passes = above_zero("epochs", DEFAULT_EPOCHS if epochs is None else epochs)
        steps = max(1, round(passes * batches))
    steps = whole_number("steps", steps)
    given = tuple(int(d) for d in given)
    return Plan(
        jnp.asarray(total, jnp.result_type(float)),
        jnp.asarray(batches, jnp.int32),
        jnp.asarray(steps, jnp.int32),
        size,
        Targets(given, inner),
    )


def make_start(init: Any, model: Model) -> Start:
    """What the first phase starts from: the network's own weights, or what ``init`` gives."""
    state = _start_state(model.network.state, model)
    if init is None:
        return Start(model.parameters, state, None, given=False)
    if isinstance(init, Posterior):
        _same_tree("init", init.model.parameters, model.parameters)
        _same_places(init.model.network, model.network)
        return Start(_means(init.bare()), _start_state(init.state, model), init.bare(), given=True)
    if isinstance(init, Parameters):
        _same_tree("init", init, model.parameters)
        return Start(init, state, None, given=True)
    try:
        network = as_network(init)
    except TypeError:
        raise TypeError(
            "init must be an earlier posterior, a trained network like the model's, or "
            f"px.Parameters, got {type(init).__name__}"
        ) from None
    _same_tree("init", network.params, model.network.params)
    _same_places(network, model.network)
    params = Parameters(network.params, model.parameters.likelihood)
    return Start(params, _start_state(network.state, model), None, given=True)


def _start_state(state: Any, model: Model) -> Any:
    """A network's state in the fit's precision; of an ensemble, the mean of its members' states."""
    dtype = jax.tree.leaves(model.parameters)[0].dtype

    def one(a: Any, like: Any) -> Any:
        members = tuple(range(jnp.ndim(a) - jnp.ndim(like)))
        if not jnp.issubdtype(a.dtype, jnp.floating):
            return a[(0,) * len(members)] if members else a
        return jnp.mean(a, members, dtype) if members else jnp.asarray(a, dtype)

    return jax.tree.map(one, state, model.network.state)


@eqx.filter_jit
def _means(posterior: Posterior) -> Parameters:
    return posterior.moments()[0]


def _same_places(got: Network, want: Network) -> None:
    if not same_places(got, want):
        raise ValueError(
            "init was pruned of other weights than the model, and its numbers belong elsewhere: "
            "fit its own model (px.fit(pruned.model, …, init=pruned)), or leave init out"
        )


def _same_tree(name: str, got: Any, want: Any) -> None:
    shapes = lambda tree: [tuple(a.shape) for a in jax.tree.leaves(tree)]  # noqa: E731
    if not same_structure(got, want) or shapes(got) != shapes(want):
        raise ValueError(
            f"{name} has other parameters than the model: shapes {shapes(got)} instead of "
            f"{shapes(want)}"
        )
