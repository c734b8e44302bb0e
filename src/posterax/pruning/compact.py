r"""Units that no longer matter leave a network: smaller arrays, and less to compute.

A hidden unit is dead when none of its outgoing weights is left, or none of its incoming weights
nor its bias while the activation of 0 is 0. Where a unit goes, its other weights go with it, and
units before or after it may die of that.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._util.tree import named_leaves
from ..model import Model, Parameters
from ..networks import MLP, Network, as_network
from ..networks.base import module_of, with_params
from ..networks.config import activation_function
from ..networks.parts import FrozenNetwork
from ..networks.sparse import Masks, SparseNetwork
from ..posteriors import LaplaceGaussian, Posterior
from ..priors import ByPart, Flat, Hierarchical, PerWeight, Prior, is_prior
from .families import check_posterior, original_sizes, pruning_record, removed


def compact(posterior: Posterior) -> Posterior:
    r"""The same posterior for a smaller network, without the units that pruning left idle.

    Its predictions have the same distribution, and the means are the same. A unit without incoming
    weights whose bias is left stays: its output is one random number, which no bias of the next
    layer can take over exactly, since it is multiplied by random weights. Inputs stay as they are.
    Priors keep the values they had in the larger network. The record keeps the old sizes, from
    which ``report`` and a later ``prune`` count; a new fit of the smaller model has a record of its
    own, and counts from the smaller network.

    Args:
        posterior: pruned, of a model with a ``px.networks.MLP`` (not ``residual``).

    Example:
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> model, data = curve_model(hidden_sizes=(16,)), curve_data(32)
        >>> posterior = px.fit(model, data, px.BayesByBackprop(), epochs=20, key=0)
        >>> small = px.pruning.compact(px.prune(posterior, 0.75))
        >>> before, after = px.pruning.report(small).widths
        >>> before, after[0] < 16
        ([16], True)
    """
    mlp = _check(posterior)
    network = posterior.model.network
    masks = {name: np.ones(np.shape(w), bool) for name, w in named_leaves(network.params).items()}
    if isinstance(network, SparseNetwork):
        masks |= {name: mask.copy() for name, mask in network.masks().items()}
    silent_at_zero = float(activation_function(mlp.activation)(jnp.zeros(()))) == 0.0
    alive = _alive(masks, len(mlp.hidden_sizes) + 1, silent_at_zero=silent_at_zero)
    about = pruning_record(posterior)
    before = about["widths"][0] if "widths" in about else list(map(int, mlp.hidden_sizes))
    about["widths"] = [before, [int(units.sum()) for units in alive[1:-1]]]
    about["sizes"] = original_sizes(posterior)
    return _smaller(removed(posterior, masks, about), mlp, alive)


def _check(posterior: Posterior) -> MLP:
    check_posterior(posterior)
    mlp = module_of(posterior.model.network)
    if type(mlp) is not MLP or mlp.residual:
        name = "one with residual=True" if type(mlp) is MLP else type(mlp).__name__
        raise ValueError(f"compact removes units of px.networks.MLP, and this network is {name}")
    if isinstance(posterior.model.network.dense(), FrozenNetwork):
        raise ValueError("compact: some of this network's weights are frozen, and stay as they are")
    priors = jax.tree.leaves(posterior.model.priors.network, is_leaf=is_prior)
    if any(isinstance(p, Hierarchical) and p.relevance for p in priors):
        raise ValueError(
            "compact: Hierarchical(relevance=True) has a variance for every unit; use "
            "relevance=False, or prune alone"
        )
    return mlp


def _alive(masks: Masks, layers: int, *, silent_at_zero: bool) -> list[np.ndarray]:
    """Which inputs, hidden units and outputs stay; what the others leave behind is masked out."""
    weights, biases = (
        [masks[f"layers.{i}.{kind}"] for i in range(layers)] for kind in ("weight", "bias")
    )
    sizes = [weights[0].shape[1], *(len(weight) for weight in weights)]
    alive = [np.ones(size, bool) for size in sizes]
    while True:
        before = [units.copy() for units in alive]
        for i in range(len(weights) - 1):
            used = weights[i + 1].any(0)
            if silent_at_zero:
                used &= weights[i].any(1) | biases[i]
            used &= alive[i + 1]
            if not used.any():
                used[np.argmax(alive[i + 1])] = True  # a layer has at least one unit
            alive[i + 1] = used
            weights[i][~alive[i + 1]] = False
            biases[i][~alive[i + 1]] = False
            weights[i + 1][:, ~alive[i + 1]] = False
        if all((a == b).all() for a, b in zip(alive, before, strict=True)):
            return alive


def _smaller(posterior: Posterior, mlp: MLP, alive: list[np.ndarray]) -> Posterior:
    """New arrays for the weights that stay: the same numbers in smaller shapes."""
    old = posterior.model.network
    masks = old.masks() if isinstance(old, SparseNetwork) else {}
    sizes = [int(units.sum()) for units in alive]
    options: Any = {"activation": mlp.activation, "key": 0}
    # its shapes: the numbers are there already
    inner = eqx.filter_eval_shape(
        lambda: as_network(MLP(mlp.in_size, mlp.out_size, sizes[1:-1], **options))
    )
    names = named_leaves(inner.params)
    positions, dense = dict[str, jax.Array](), dict[str, tuple[int, ...]]()
    for name in (name for name in names if name in masks):
        i = int(name.split(".")[1])
        into = alive[i + 1]
        mask = masks[name][np.ix_(into, alive[i]) if name.endswith("weight") else into]
        if mask.all():
            dense[name] = names[name].shape
        else:
            positions[name] = jnp.asarray(np.flatnonzero(mask), jnp.int32)
    move = _Move(jax.tree.structure(inner.params), list(names), dense)
    params = move(posterior.model.network.params)
    if positions:
        shapes = tuple((name, tuple(w.shape)) for name, w in names.items())
        bare = eqx.tree_at(lambda n: n.params, inner, None)
        network: Network = SparseNetwork(params, inner.state, bare, positions, shapes)
    else:
        network = with_params(inner, params)
    fields: dict[str, Any] = {
        name: value._replace(network=move(value.network))
        for name, value in vars(posterior).items()
        if isinstance(value, Parameters)
    }
    if isinstance(posterior, LaplaceGaussian):
        fields["blocks"] = {
            key: block | {"deviation": move.array(block["leaves"], block["deviation"])}
            for key, block in posterior.blocks.items()
        }
    return dataclasses.replace(posterior, model=_model(posterior.model, network, move), **fields)


class _Move:
    """Trees of the larger network's weights become such of the smaller one's."""

    def __init__(self, treedef: Any, names: list[str], dense: dict[str, tuple[int, ...]]):
        self.treedef, self.names = treedef, names
        self.dense = dense  # what is a vector of some entries, and now an array of all

    def __call__(self, tree: PyTree) -> PyTree:
        leaves = jax.tree.leaves(tree, is_leaf=lambda n: n is None or is_prior(n))
        named = zip(self.names, leaves, strict=True)
        return jax.tree.unflatten(self.treedef, [self.array(*pair) for pair in named])

    def array(self, name: str, value: Any) -> Any:
        shape = self.dense.get(name.removeprefix("network."))
        if value is None or shape is None:
            return value
        if isinstance(value, Prior):
            return jax.tree.map(lambda a: a.reshape(shape) if np.ndim(a) else a, value)
        front = np.shape(value)[:-1]
        return jnp.asarray(np.asarray(value).reshape(*front, *shape))


def _model(model: Model, network: Network, move: _Move) -> Model:
    priors = move(model.priors.network)
    prior: Prior = model.prior
    if isinstance(prior, PerWeight):
        prior = PerWeight(*(t._replace(network=move(t.network)) for t in (prior.loc, prior.scale)))
    elif not _same(network.resolve(prior), priors):
        # a fan-in is that of the larger network: what each array has, by name
        own = named_leaves(priors, is_leaf=is_prior)
        shapes = {name: w.shape for name, w in named_leaves(network.dense().params).items()}
        for name, each in own.items():
            if isinstance(each, Hierarchical):  # such that with this array's fan-in it is the same
                rate = each.rate * network.fan_in(shapes[name], name)
                own[name] = Hierarchical(each.concentration, rate)
        prior = ByPart(own)
    parameters = model.parameters._replace(network=network.params)
    parts = (network, prior, parameters, model.priors._replace(network=priors))
    return eqx.tree_at(lambda m: (m.network, m.prior, m.parameters, m.priors), model, parts)


def _same(one: PyTree, other: PyTree) -> bool:
    pairs = zip(*(jax.tree.leaves(tree, is_leaf=is_prior) for tree in (one, other)), strict=True)
    return all(isinstance(b, Flat) or bool(eqx.tree_equal(a, b)) for a, b in pairs)
