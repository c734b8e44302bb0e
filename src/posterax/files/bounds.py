"""What a file may ask for: checks of its header before anything is built from it.

A digest finds damage, not intent: whoever edits a file can make its digest right again. So sizes
are compared with what the file holds before memory is asked for, and types before they are used.
Messages say what is wrong; ``container.refusing`` says of which file.
"""

import dataclasses
import math
from contextlib import suppress
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from .._util.tree import named_leaves, same_structure
from ..errors import CheckpointError
from ..model import Model
from ..posteriors import Draws, DropoutPosterior, Enumerated, Posterior
from ..predictive import Targets
from ..priors import Grid
from .container import Arrays, shortened

UNSTORED = 2**24  # numbers that may be made for a file that does not hold them: 64 MiB of float32
PER_BYTE = 8 * 1032  # weights that one byte of a mask can speak of: bits, deflated at the most
LAYERS = 1000  # each is built in Python, so that too many take for ever
FEW_LAYERS = 64  # these take no time, whatever the file holds


def field(node: Any, name: str, *kinds: Any, of: str = "header") -> Any:
    """An entry of the header, refused where it is missing or of another type.

    Example:
        >>> from posterax.files.bounds import field
        >>> field({"method": "HMC"}, "method", str)
        'HMC'
    """
    if not isinstance(node, dict) or name not in node:
        raise CheckpointError(f"its {of} has no {name!r}")
    value = node[name]
    # True is an int in Python, and no size
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join("null" if k is type(None) else k.__name__ for k in kinds)
        raise CheckpointError(f"{name!r} in its {of} must be {wanted}, got {shortened(value)}")
    return value


def texts(node: Any, name: str) -> list[str]:
    """An entry that is a list of names."""
    names = field(node, name, list)
    if not all(isinstance(text, str) for text in names):
        raise CheckpointError(f"{name!r} in its header must be a list of names")
    return names


def named(known: dict[str, Any], node: Any, what: str) -> Any:
    """What a file may name, by its name there."""
    name = field(node, "name", str)
    if name not in known:
        raise CheckpointError(f"unknown {what} {shortened(name)}; known are {', '.join(known)}")
    return known[name]


def float_type(header: dict[str, Any]) -> Any:
    """The type of the weights: a float, as JAX has it here."""
    name = field(header, "dtype", str)
    if name not in ("float16", "bfloat16", "float32", "float64"):
        raise CheckpointError(f"unknown type of weights {shortened(name)}")
    return np.dtype(name)


def target_shapes(header: dict[str, Any]) -> Targets:
    """The two shapes of a target."""
    shapes = field(header, "targets", list)
    valid = lambda d: type(d) is int and 0 < d < 2**31  # noqa: E731
    good = all(isinstance(s, list) and len(s) <= 8 and all(map(valid, s)) for s in shapes)
    if len(shapes) != 2 or not good or math.prod(shapes[1]) > UNSTORED:
        raise CheckpointError(f"targets cannot have the shapes {shortened(shapes)}")
    given, inner = map(tuple, shapes)
    if given != inner and (given, inner) != ((), (1,)):
        raise CheckpointError(f"targets of {given} cannot be held as {inner}")
    return Targets(given, inner)


def check_config(config: Any, most: int, of_inputs: tuple[str, ...] = ()) -> dict[str, Any]:
    """A network's arguments: few layers, so that even their shapes are found in no time.

    ``most`` is how many the file can hold: a layer has weights, and so arrays or numbers there.
    ``of_inputs`` are arguments with an entry for each input, of which nothing is built.
    """
    if not isinstance(config, dict):
        raise CheckpointError("a network's settings must be a dict")
    most = min(LAYERS, max(FEW_LAYERS, most))
    for name, value in config.items():
        if name in of_inputs:
            if value is None:  # would be all of them, however many the file says there are
                raise CheckpointError(f"{name} of a network's settings are not there")
            continue
        count = len(value) if isinstance(value, list | str) else value if name == "layers" else 0
        if isinstance(count, int) and count > most:
            raise CheckpointError(f"{count:,} {name} are more than the file can hold, {most:,}")
    return config


def check_size(what: str, tree: PyTree, arrays: Arrays) -> None:
    """Refuse to make far more numbers than the file holds; ``tree`` is of arrays or shapes."""
    asked = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree) if hasattr(leaf, "shape"))
    # of weights that were pruned the file holds a mask
    names = named_leaves(getattr(tree, "params", ()))
    masks = [arrays[f"mask/{name}"] for name in names if f"mask/{name}" in arrays]
    check_count(what, asked, arrays, masked=PER_BYTE * sum(mask.nbytes for mask in masks))


def check_count(what: str, asked: int, arrays: Arrays, masked: int = 0) -> None:
    """Refuse to make far more numbers than the file holds; ``masked`` may be zeros of masks."""
    held = numbers_held(arrays)
    if asked > UNSTORED + held + masked:
        raise CheckpointError(f"{what} would be {asked:,} numbers, and the file holds {held:,}")


def numbers_held(arrays: Arrays) -> int:
    """How many numbers a file holds."""
    return sum(array.size for array in arrays.values())


def check_posterior(posterior: Posterior) -> None:
    """Refuse a posterior whose draws are not parameters of its model; nothing is computed."""
    for one in dataclasses.fields(posterior):
        value = getattr(posterior, one.name)
        if one.type in (bool, "bool") and not isinstance(value, bool):
            raise CheckpointError(f"{one.name} must be true or false, got {value!r}")
    if isinstance(posterior, Enumerated):
        _check_states(posterior)
    if isinstance(posterior, Draws):
        _check_draws(posterior)
    if isinstance(posterior, DropoutPosterior):
        _check_dropout(posterior)
    _check_priors(posterior.model)

    def draw(key: jax.Array) -> Any:
        ids = posterior.particles(key, 1).ids
        first = jax.tree.map(lambda a: a[0], ids)
        return posterior.parameters(first), posterior.network_state(first)

    drawn = jax.eval_shape(draw, jax.ShapeDtypeStruct((), jax.random.key(0).dtype))
    model = posterior.model
    expected = jax.eval_shape(lambda: (model.parameters, model.network.state))
    if not same_structure(drawn, expected):
        raise CheckpointError("its draws have other parts than the model")
    named_draws = named_leaves(drawn).items()
    for (name, one), like in zip(named_draws, jax.tree.leaves(expected), strict=True):
        if one.shape != like.shape:
            raise CheckpointError(f"a draw of {name} has the shape {one.shape}, not {like.shape}")
    with suppress(NotImplementedError, ValueError):  # that there are none
        jax.eval_shape(posterior.moments)


def _check_priors(model: Model) -> None:
    """A prior's numbers are one for all weights of an array, or one for each."""
    for prior, w in zip(model.prior_of_each(), jax.tree.leaves(model.parameters), strict=True):
        # those of a grid belong to no weight
        shapes = [] if isinstance(prior, Grid) else map(np.shape, jax.tree.leaves(prior))
        if any(np.broadcast_shapes(shape, w.shape) != w.shape for shape in shapes):
            raise CheckpointError(f"a prior does not fit its weights of the shape {w.shape}")


def check_outputs(model: Model, targets: Targets) -> None:
    """Refuse a network of posterax's whose outputs are not those that its likelihood needs."""
    module = getattr(model.network.dense(), "static", None)
    wide = getattr(module, "out_size", None)
    if wide is None:  # of the user's own, which the data will be checked with
        return
    steps = targets.inner[:1] if getattr(module, "per_step", False) else ()
    example = np.empty((0, *targets.given))
    if model.likelihood.check((0, *steps, wide), example) != targets.inner:
        raise CheckpointError(f"{wide} outputs do not fit targets of the shape {targets.inner}")


def _check_states(posterior: Enumerated) -> None:
    """As many probabilities as the grids have states."""
    sizes = [leaf.size for leaf in jax.tree.leaves(posterior.model.parameters)]
    held = np.shape(posterior.log_probs)
    grids: list[Any] = posterior.model.prior_of_each()
    bits = sum(size * math.log2(len(grid)) for grid, size in zip(grids, sizes, strict=True))
    if bits > 40 or held != (round(2**bits),):
        raise CheckpointError(f"probabilities of {held} states, where 2^{bits:g} belong")
    total = np.exp(np.asarray(posterior.log_probs, np.float64)).sum()
    if not 0 < total < np.inf:
        raise CheckpointError(f"probabilities of its states sum to {total}")


def _check_draws(posterior: Draws) -> None:
    """As many draws of every weight, and as many numbers of what is known of each."""
    shape = np.shape(jax.tree.leaves(posterior.draws)[0])[:2]
    beside = {"log_weights": posterior.log_weights, **(posterior.stats or {})}
    for name, part in (named_leaves(posterior.draws) | beside).items():
        if part is not None and np.shape(part)[:2] != shape:
            raise CheckpointError(f"{name} is of {np.shape(part)[:2]} draws, others of {shape}")
    for name in ("khat", "log_normaliser"):
        value: Any = getattr(posterior, name, None)
        if np.ndim(value):
            raise CheckpointError(f"{name} must be one number")
    if math.prod(shape) == 0:
        raise CheckpointError("it has no draws")
    if posterior.log_weights is not None and not np.isfinite(np.max(posterior.log_weights)):
        raise CheckpointError("the weights of its draws are all 0")


def _check_dropout(posterior: DropoutPosterior) -> None:
    """Rates are shares, and units are numbered from 0."""
    for name, rate in posterior.rates.items():
        if not np.all((np.asarray(rate) >= 0) & (np.asarray(rate) < 1)):
            raise CheckpointError(f"the rate of {shortened(name)} must lie between 0 and 1")
    for name, units in posterior.units.items():
        numbers = np.asarray(units)
        if not np.all((numbers >= 0) & (numbers < numbers.size)):
            raise CheckpointError(f"the units of {shortened(name)} are not those of its network")
