"""Which quantity of a posterior's chains a picture shows, by the names of ``diagnose``."""

import operator
import re

import jax
import numpy as np
from jaxtyping import PyTree

from .._util.admit import admit_inputs
from .._util.tree import named_leaves, plain
from ..diagnostics.chain_statistics import convergence
from ..diagnostics.diagnosis import prediction_values, weight_values
from ..posteriors import Draws, Posterior

LOOKED_AT = 200  # quantities of which the worst is drawn


def chained(posterior: Posterior, name: str) -> Draws:
    """The posterior, if it has chains; ``name`` is the picture of them."""
    if not (isinstance(posterior, Draws) and posterior.chained):
        raise ValueError(f"{name} draws Markov chains; this {type(posterior).__name__} has none")
    return posterior


def quantity(posterior: Draws, of: str | None, x: PyTree) -> tuple[np.ndarray, str]:
    """The values (chain, draw) of a quantity, and its name."""
    stats = posterior.stats or {}
    if of in stats:
        return np.asarray(stats[of], np.float64), str(of)
    if of is not None and x is not None:
        return _prediction(posterior, of, x).astype(np.float64), of
    if of is not None:
        leaves = named_leaves(posterior.draws)
        shapes = {name: leaf.shape[2:] for name, leaf in leaves.items()}
        also = f" Statistics: {', '.join(stats) or 'none'}. Predictions such as f(x[0]) need x="
        name, index = weight_entry(of, shapes, also)
        return plain(leaves[name][(slice(None), slice(None), *index)]).astype(np.float64), of
    if x is None:
        values, names, _ = weight_values(posterior, LOOKED_AT)
    else:
        values, names, _ = prediction_values(posterior, x, LOOKED_AT)
    rhat = convergence(values).rhat if posterior.shape[1] >= 8 else np.full(len(names), np.nan)
    worst = 0 if np.isnan(rhat).all() else int(np.nanargmax(rhat))
    return values[..., worst].astype(np.float64), names[worst]


def _prediction(posterior: Draws, of: str, x: PyTree) -> np.ndarray:
    match = re.fullmatch(r"f\(x\[(\d+)\]\)(\[[\d, ]+\])?", of)
    x = admit_inputs(x)
    n = len(jax.tree.leaves(x)[0])
    if match is None or int(match[1]) >= n:
        raise ValueError(f"of={of!r}: with x=, name a prediction from f(x[0]) to f(x[{n - 1}])")
    row = int(match[1])
    one = jax.tree.map(lambda a: a[row : row + 1], x)
    values, names, total = prediction_values(posterior, one, most=2**31)
    wanted = f"f(x[0]){match[2] or ''}"
    if wanted not in names:
        raise ValueError(f"of={of!r}: each input has {total} outputs: f(x[{row}]){names[0][7:]}, …")
    return values[..., names.index(wanted)]


def weight_entry(
    of: str, shapes: dict[str, tuple[int, ...]], also: str = ""
) -> tuple[str, tuple[int, ...]]:
    """The array and the index in it of ``"network.layers.0.weight[3, 0]"``, or without network."""
    match = re.fullmatch(r"(.*?)(?:\[([\d, ]+)\])?", of, re.DOTALL)
    assert match is not None
    index = tuple(int(i) for i in (match[2] or "").split(",") if i.strip())
    for array in (match[1], f"network.{match[1]}"):
        shape = shapes.get(array, (0,))
        if len(index) == len(shape) and all(map(operator.lt, index, shape)):
            return array, index
    known = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    how = f"one is named with its place, as in {next(iter(shapes))}[0, 0]"
    raise ValueError(f"of: no weight {of!r}; {how}. Arrays: {known}.{also}")
