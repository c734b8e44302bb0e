"""Which weights make the last layer of a network."""

from collections.abc import Callable

import jax
from jaxtyping import PyTree

from .._util.jax_names import JaxprEqn
from .reuse import LOOP
from .walker import LOOPS, PRODUCTS, structural, walk, within

Tag = tuple[str, int] | None  # ("weight", i), or ("layer", i): the product with weight i


def last_layer(function: Callable[..., PyTree], weights: PyTree, x: PyTree) -> list[int]:
    """Which weights the last product of a network is made of: its factor, and what is added to it.

    Example:
        >>> import jax.numpy as jnp
        >>> from posterax.program.last_layer import last_layer
        >>> w = {"b": jnp.ones(3), "c": jnp.ones(1), "v": jnp.ones((3, 1)), "w": jnp.ones((2, 3))}
        >>> def network(w, x):
        ...     return jnp.tanh(x @ w["w"] + w["b"]) @ w["v"] + w["c"]
        >>> last_layer(network, w, jnp.ones((1, 2)))  # c and v
        [1, 2]
    """
    program = jax.make_jaxpr(function)(weights, x)
    # in the order of the program, by the weight of the product; ``LOOP`` for a loop with products
    layers: dict[int | str, set[int]] = {}

    def rule(eqn: JaxprEqn, inputs: list[Tag]) -> list[Tag]:
        name, by_kind = eqn.primitive.name, dict(tag for tag in inputs if tag is not None)
        weight, layer = by_kind.get("weight"), by_kind.get("layer")
        if name in LOOPS and weight is not None and _multiplies(eqn):
            layers.pop(LOOP, None)
            layers[LOOP] = set()
        elif name in PRODUCTS and weight is not None:
            layers.pop(weight, None)  # the last of several uses counts
            layers[weight] = {weight}
            return [("layer", weight)]
        elif name in ("add", "add_any") and layer is not None:
            layers[layer] |= set() if weight is None else {weight}
            return [("layer", layer)]
        elif inputs and (structural(eqn) or name == "broadcast_in_dim"):
            return [inputs[0]]
        return [None] * len(eqn.outvars)

    tags: list[Tag] = [("weight", i) for i in range(len(jax.tree.leaves(weights)))]
    tags += [None] * (len(program.in_avals) - len(tags))
    walk(program, tags, rule, constant=lambda value: None)
    if next(reversed(layers), None) == LOOP:
        raise ValueError(
            "structure='last_layer': the network's last product with a weight lies in a loop, "
            "which may hold several layers; name the weights of the last one with layer="
        )
    return sorted(list(layers.values())[-1]) if layers else []


def _multiplies(loop: JaxprEqn) -> bool:
    return any(eqn.primitive.name in PRODUCTS for eqn in within(loop))
