"""Where a fit starts: the network's own weights, or what ``init=`` gives."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._util.tree import dtype_of, same_structure, shapes_of
from ..infer.base import Start
from ..model import Model, Parameters
from ..networks import Network, as_network
from ..networks.sparse import same_masks
from ..posteriors import Posterior
from ..program.compiled import compiled


def make_start(init: Any, model: Model) -> Start:
    """What the first phase starts from: the network's own weights, or what ``init`` gives."""
    state = _start_state(model.network.state, model)
    if init is None:
        return Start(model.parameters, state, None, given=False)
    if isinstance(init, Posterior):
        _same_tree("init", init.model.parameters, model.parameters)
        _same_masks(init.model.network, model.network)
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
    _same_masks(network, model.network)
    params = Parameters(network.params, model.parameters.likelihood)
    return Start(params, _start_state(network.state, model), None, given=True)


def _start_state(state: PyTree, model: Model) -> PyTree:
    """A network's state in the fit's precision; of an ensemble, the mean of its members' states."""
    dtype = dtype_of(model.parameters)

    def one(a: Any, like: Any) -> Any:
        members = tuple(range(jnp.ndim(a) - jnp.ndim(like)))
        if not jnp.issubdtype(a.dtype, jnp.floating):
            return a[(0,) * len(members)] if members else a
        return jnp.mean(a, members, dtype) if members else jnp.asarray(a, dtype)

    return jax.tree.map(one, state, model.network.state)


@compiled
def _means(posterior: Posterior) -> Parameters:
    return posterior.moments()[0]


def _same_masks(got: Network, want: Network) -> None:
    if not same_masks(got, want):
        raise ValueError(
            "init was pruned of other weights than the model, and its numbers belong elsewhere: "
            "fit its own model (px.fit(pruned.model, …, init=pruned)), or leave init out"
        )


def _same_tree(name: str, got: PyTree, want: PyTree) -> None:
    if not same_structure(got, want) or shapes_of(got) != shapes_of(want):
        raise ValueError(
            f"{name} has other parameters than the model: shapes {shapes_of(got)} instead of "
            f"{shapes_of(want)}"
        )
