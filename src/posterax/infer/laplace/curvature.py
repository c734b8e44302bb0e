r"""The generalised Gauss–Newton matrix of a model, summed over the data, in blocks.

    H = Σₙ weightₙ Jₙᵀ Λₙ Jₙ,   Jₙ = ∂f(xₙ; w)/∂w,   Λₙ = Σₖ sₖ sₖᵀ  (see ``fisher``)

so H is a sum of outer products of gₙₖ = Jₙᵀ sₖ, derivatives backwards through the network from
each column sₖ. Blocks are **dense** (all products of their weights), **diagonal** (squares alone)
or, for a weight with inputs a and outputs z (see ``sites``), **kronecker**: gₙₖ is Σₜ a gᵀ over the
positions t where the weight meets an example, g the derivative in z, and

    H ≈ (Σₙₜ a aᵀ) ⊗ (Σₙₖₜ g gᵀ) / (N T)

as if a and g, and different positions, were independent (Martens and Grosse 2015; Grosse and
Martens 2016 for convolutions). Where there is one example with one position, it is exact.

Products are summed in float64 whatever the precision of the network: with 1000 examples and little
noise the largest eigenvalue of H is 10⁷ or 10⁸ times the prior's precision, and what float32 rounds
off would count as knowledge of directions that the data say nothing about.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ..._util.tree import named_leaves, tree_size
from ...data import Batch
from ...model import Model, Parameters
from ...networks.parts import Where, select
from ...posteriors.laplace import as_weight
from ...priors import is_flat, is_prior
from ...program.reuse import last_layer
from ...program.sites import Site, find_sites, through_sites
from .fisher import columns

SMALL = 512  # arrays up to so many numbers, and without Kronecker factors, get a dense block
NUMBERS = 2**23  # that the derivatives of the examples treated together may take

REST = "_rest"  # a sum of products is two numbers in the network's precision: it, and what it lacks

Sums = dict[str, dict[str, jax.Array]]


class Block(NamedTuple):
    """Weights whose curvature is kept together."""

    name: str
    kind: str  # dense, kronecker, diagonal
    leaves: tuple[int, ...]  # which of all parameters
    sizes: tuple[int, ...]
    site: Site | None = None

    @property
    def size(self) -> int:
        """Number of weights."""
        return sum(self.sizes)

    def shapes(self, model: Model) -> dict[str, tuple[int, ...]]:
        """Shapes of the sums, less what they lack."""
        if self.kind == "dense":
            return {"matrix": (self.size, self.size)}
        if self.kind == "diagonal":
            return {"diagonal": jax.tree.leaves(model.parameters)[self.leaves[0]].shape}
        assert self.site is not None
        i, o = self.site.inputs, self.site.outputs
        return {"inputs": (i, i), "outputs": (o, o)}


def layout(model: Model, example: PyTree, structure: str, layer: Where | None) -> tuple[Block, ...]:
    """The blocks of a structure.

    Args:
        model: the model, with its likelihood's parameters made.
        example: a batch of one example's inputs, by shape.
        structure: ``"full"``, ``"last_layer"``, ``"kronecker"`` or ``"diagonal"``.
        layer: which weights ``"last_layer"`` means; ``None``: those of the last product.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> from posterax.infer.laplace.curvature import layout
        >>> model = px.Model(
        ...     px.networks.MLP(3, 1, (4,), key=0), likelihood=px.likelihoods.Gaussian(0.1)
        ... ).for_targets((1,), jnp.float32)
        >>> for block in layout(model, jax.ShapeDtypeStruct((1, 3), "float32"), "kronecker", None):
        ...     print(block.name, block.kind, block.size)
        network.layers.0.weight kronecker 12
        network.layers.0.bias dense 4
        network.layers.1.weight kronecker 4
        network.layers.1.bias dense 1
    """
    weights, names = model.parameters.network, list(named_leaves(model.parameters))
    sizes = [leaf.size for leaf in jax.tree.leaves(model.parameters)]
    random = [not is_flat(prior) for prior in jax.tree.leaves(model.priors, is_leaf=is_prior)]
    count, state = len(jax.tree.leaves(weights)), model.network.state

    def network(weights: PyTree, x: PyTree, model: Model = model) -> jax.Array:
        return model.apply(Parameters(weights, None), state, x, None, training=False)[0]

    def block(name: str, kind: str, leaves: list[int], site: Site | None = None) -> Block:
        return Block(name, kind, tuple(leaves), tuple(sizes[i] for i in leaves), site)

    of_network = [i for i in range(count) if random[i]]
    if structure == "last_layer":
        inner, unfold = model.unfolded()  # pruned weights are no factors before they are in place
        last = partial(network, model=inner)
        of_network = _last(last, unfold(model.parameters).network, example, layer, random)
    own = [i for i in range(count, len(sizes)) if random[i] and sizes[i]]
    # a likelihood's parameters apart: only the network's prior is ever scaled, and for a location
    # and a scale nothing is lost
    blocks = [block("likelihood", "dense", own)] if own else []
    if structure in ("full", "last_layer"):
        return (block("network", "dense", of_network), *blocks)
    sites = find_sites(network, weights, example)
    made = []
    for i in of_network:
        site = sites[i]
        if structure == "diagonal":
            # without factors a kernel's squares need the derivative of each example
            once = site if site is not None and site.rows == 1 else None
            made.append(block(names[i], "diagonal", [i], once))
        elif site is not None:
            made.append(block(names[i], "kronecker", [i], site))
        else:
            made.append(block(names[i], "dense" if sizes[i] <= SMALL else "diagonal", [i]))
    return (*made, *blocks)


def _last(
    network: Callable, weights: PyTree, x: PyTree, layer: Where | None, random: list[bool]
) -> list[int]:
    """The weights of the last layer that have a prior."""
    if layer is None:
        chosen = last_layer(network, weights, x)
    else:
        try:
            tree = select(weights, layer)
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace("where", "layer", 1)) from None
        chosen = [i for i, yes in enumerate(jax.tree.leaves(tree)) if yes]
    uncertain = [i for i in chosen if random[i]]
    if not uncertain:
        why = "its weights are points without a prior" if chosen else "no product with a weight"
        names = ", ".join(named_leaves(weights))
        raise ValueError(f"structure='last_layer': {why}; name weights with layer=, among {names}")
    return uncertain


def zeros(blocks: tuple[Block, ...], model: Model) -> Sums:
    """The sums before the first example."""
    dtype = jax.tree.leaves(model.parameters)[0].dtype

    def of(block: Block) -> dict[str, jax.Array]:
        shapes = block.shapes(model)
        if block.kind != "diagonal":
            shapes |= {name + REST: shape for name, shape in shapes.items()}
        return {name: jnp.zeros(shape, dtype) for name, shape in shapes.items()}

    return {block.name: of(block) for block in blocks}


def with_rest(sums: Sums) -> Sums:
    """The sums with what they lack; in float64, where JAX has it."""
    wide = jax.tree.map(lambda a: a.astype(float), sums)
    return {
        block: {
            name: value + of.get(name + REST, 0)
            for name, value in of.items()
            if not name.endswith(REST)
        }
        for block, of in wide.items()
    }


def add_batch(
    sums: Sums,
    blocks: tuple[Block, ...],
    model: Model,
    params: Parameters,
    state: PyTree,
    batch: Batch,
    key: jax.Array,
    probes: int,
) -> Sums:
    """The sums with a minibatch's part, the network in prediction mode.

    A few examples at a time, so that their derivatives fit ``NUMBERS``.
    """

    def one(x: PyTree, weight: jax.Array, key: jax.Array) -> PyTree:
        return _derivatives(blocks, model, params, state, x, weight, key, probes)

    rows = len(batch.weight)
    alone = jax.tree.map(lambda a: a[0], (batch.x, batch.weight))
    each = tree_size(jax.eval_shape(one, *alone, key))
    index = in_parts(rows, each)
    parts, size = index.shape
    # rows that fill up the last part count nothing
    weight = jnp.where(index < rows, batch.weight[index % rows], 0)

    def part(sums: Sums, given: PyTree) -> tuple[Sums, None]:
        index, weight, key = given
        x = jax.tree.map(lambda a: a[index % rows], batch.x)
        products = jax.vmap(one)(x, weight, jax.random.split(key, size))
        return {b.name: _added(sums[b.name], b, weight, *products) for b in blocks}, None

    return jax.lax.scan(part, sums, (index, weight, jax.random.split(key, parts)))[0]


def in_parts(rows: int, each: int) -> jax.Array:
    """Indices of examples, (parts, size), with so many numbers each that a part fits ``NUMBERS``.

    Indices of ``rows`` and beyond fill up the last part.
    """
    parts = min(rows, -(-rows * each // NUMBERS))
    size = -(-rows // parts)
    return jnp.arange(parts * size).reshape(parts, size)


def _derivatives(
    blocks: tuple[Block, ...],
    model: Model,
    params: Parameters,
    state: PyTree,
    x: PyTree,
    weight: jax.Array,
    key: jax.Array,
    probes: int,
) -> tuple[dict[int, jax.Array], dict[int, jax.Array]]:
    """For one example: inputs of the products, and √weight · gₙₖ, by the weights' indices.

    The derivatives are in the products (K, rows, outputs) of weights that have one, and in the
    weights themselves (K, …) for the others.
    """
    leaves, treedef = jax.tree.flatten(params.network)
    count = len(leaves)
    sites: list[Site | None] = [None] * count
    for block in blocks:
        if block.site is not None:
            sites[block.leaves[0]] = block.site
    wanted = [i for block in blocks for i in block.leaves]
    free = [i for i in wanted if i < count and sites[i] is None]
    x = jax.tree.map(lambda a: a[None], x)

    def network(weights: PyTree, x: PyTree) -> jax.Array:
        return model.apply(Parameters(weights, None), state, x, None, training=False)[0]

    def outputs(values: dict[int, jax.Array], added: list[PyTree]) -> PyTree:
        changed = [values.get(i, leaf) for i, leaf in enumerate(leaves)]
        return through_sites(network, jax.tree.unflatten(treedef, changed), x, sites, added)

    nothing = [
        None if site is None else jnp.zeros((site.rows, site.outputs), leaf.dtype)
        for site, leaf in zip(sites, leaves, strict=True)
    ]
    value, back, inputs = jax.vjp(outputs, {i: leaves[i] for i in free}, nothing, has_aux=True)
    _, side = model.likelihood.split(x)
    scores, own = columns(model.likelihood, value, params.likelihood, side, key, probes)
    root = jnp.sqrt(weight)
    in_weights, in_products = jax.vmap(back)(root * scores)
    made = dict(enumerate([*in_products, *(root * s for s in jax.tree.leaves(own))])) | in_weights
    return (
        {i: a.astype(weight.dtype) for i, a in enumerate(inputs) if a is not None},
        {i: made[i] for i in wanted},
    )


def _added(
    sums: dict[str, jax.Array],
    block: Block,
    weight: jax.Array,
    inputs: dict[int, jax.Array],
    derivatives: dict[int, jax.Array],
) -> dict[str, jax.Array]:
    """A block's sums with the examples' part."""
    first = block.leaves[0]
    if block.kind == "dense":
        parts = [derivatives[i] for i in block.leaves]
        flat = [g.reshape(g.shape[0] * g.shape[1], -1) for g in parts]
        return add_products(sums, "matrix", jnp.concatenate(flat, axis=1))
    if block.kind == "kronecker":
        a = jnp.sqrt(weight)[:, None, None] * inputs[first]
        g = derivatives[first]
        return {
            **add_products(sums, "inputs", a.reshape(-1, a.shape[-1])),
            **add_products(sums, "outputs", g.reshape(-1, g.shape[-1])),
        }
    squares = jnp.square(derivatives[first])
    if block.site is None:
        return {"diagonal": sums["diagonal"] + jnp.sum(squares, axis=(0, 1))}
    before = sums["diagonal"]
    of_inputs = jnp.square(inputs[first][:, 0])
    matrix = jnp.einsum("ni,nko->io", of_inputs, squares[:, :, 0], precision="highest")
    return {"diagonal": before + as_weight(matrix, block.site.order, before.shape)}


def add_products(sums: dict[str, jax.Array], name: str, rows: jax.Array) -> dict[str, jax.Array]:
    """A sum with Σ r rᵀ over the rows r, in float64."""
    high, low = sums[name], sums[name + REST]
    precision = jnp.finfo(high.dtype)
    with jax.enable_x64(True):
        r, a, b = (value.astype(float) for value in (rows, high, low))
        total = a + b + jnp.matmul(r.T, r, precision="highest")
        # unlike a conversion there and back, no compiler takes this for nothing
        rounded = jax.lax.reduce_precision(total, precision.nexp, precision.nmant)
        high, low = rounded.astype(high.dtype), (total - rounded).astype(high.dtype)
    return {name: high, name + REST: low}


def trace(sums: Sums, blocks: tuple[Block, ...], mass: jax.Array) -> jax.Array:
    """The trace of H, over examples of this weight in all."""
    total = jnp.zeros_like(mass)
    for block in blocks:
        part = sums[block.name]
        if block.kind == "kronecker":
            assert block.site is not None
            both = jnp.trace(part["inputs"]) * jnp.trace(part["outputs"])
            total += both / jnp.where(mass > 0, mass * block.site.rows, 1)
        else:
            total += jnp.trace(part["matrix"]) if "matrix" in part else part["diagonal"].sum()
    return total
