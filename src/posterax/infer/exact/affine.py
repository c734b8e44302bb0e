r"""Whether a network is affine in its random weights, by trying.

    f(x; ½ (a + b)) = ½ (f(x; a) + f(x; b))   for all a and b

holds for affine functions only. Weights a and b are drawn about zero, as large as those of the
prior: where that is narrow and far away, every network is straight. What bends by less than
rounding cannot be told.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ..._util.tree import named_leaves
from ...model import Model, Parameters
from ...priors import Gaussian, is_prior
from ...program.compiled import compiled

PAIRS = 16  # a unit that is cut off at zero is straight between two weights of one sign
ROUNDINGS = 256  # of the outputs, that a sum over many weights may be off by
STRAIGHT = 0.05  # and never more: a bfloat16 has two digits


def probes(model: Model, count: int = PAIRS) -> tuple[Parameters, Parameters]:
    """Weights a and b, as large as those of Gaussian priors, ``count`` of each, on a first axis."""
    rng = np.random.default_rng(0)  # not of the fit's key: a check has no part in what is random

    def draw(prior: Gaussian, w: jax.Array) -> np.ndarray:
        size = np.hypot(np.asarray(prior.loc), np.asarray(prior.scale))
        return (size * rng.normal(size=(count, *w.shape))).astype(w.dtype)

    a, b = (jax.tree.map(draw, model.priors, model.parameters, is_leaf=is_prior) for _ in range(2))
    return a, b


def bend(model: Model, state: PyTree, x: PyTree, a: Parameters, b: Parameters) -> jax.Array:
    """The largest |f(a) + f(b) − 2 f(½ (a + b))| over the largest |f|.

    Args:
        model: the model.
        state: the network's state.
        x: inputs.
        a: weights, several on a leading axis.
        b: others.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> from posterax.infer.exact.affine import bend, probes
        >>> likelihood, x = px.likelihoods.Gaussian(0.1), jnp.ones((4, 2))
        >>> for hidden in ((), (3,)):
        ...     model = px.Model(px.networks.MLP(2, 1, hidden, key=0), likelihood=likelihood)
        ...     print(bool(bend(model, None, x, *probes(model)) < 1e-5))
        True
        False
    """

    def outputs(params: Parameters) -> jax.Array:
        return model.apply(params, state, x, None, training=False)[0]

    middle = jax.tree.map(lambda u, v: 0.5 * (u + v), a, b)
    f, g, h = (jax.vmap(outputs)(params) for params in (a, b, middle))
    # outputs that are not finite are not for this test to judge
    gap = jnp.max(jnp.nan_to_num(jnp.abs(f + g - 2 * h), posinf=0.0))
    size = jnp.max(jnp.nan_to_num(jnp.abs(f), posinf=0.0))
    return gap / jnp.where(size > 0, size, 1)


def tolerance(model: Model) -> float:
    """The bend that rounding makes."""
    dtype = model.compute_dtype or jax.tree.leaves(model.parameters)[0].dtype
    return min(STRAIGHT, ROUNDINGS * float(jnp.finfo(dtype).eps))


def refuse_bent(model: Model, inputs: PyTree, instead: str) -> None:
    """Refuse a network that is not affine, at inputs made up in the shape of the real ones.

    Args:
        model: the model, its priors all Gaussian.
        inputs: a batch of inputs by shape and type.
        instead: the methods that take it.
    """
    rng = np.random.default_rng(1)

    def some(a: jax.ShapeDtypeStruct) -> np.ndarray:
        shape = (min(8, a.shape[0]), *a.shape[1:])
        numbers = jnp.issubdtype(a.dtype, jnp.floating)
        return (rng.normal(size=shape) if numbers else rng.integers(0, 2, shape)).astype(a.dtype)

    x, (a, b), most = jax.tree.map(some, inputs), probes(model), tolerance(model)
    if _bend(model, x, a, b) <= most:
        return
    names = list(named_leaves(model.parameters))
    (ends, others), treedef = map(jax.tree.leaves, (a, b)), jax.tree.structure(a)

    def alone(i: int) -> bool:
        moved = [v if i == j else u for j, (u, v) in enumerate(zip(ends, others, strict=True))]
        return bool(_bend(model, x, a, jax.tree.unflatten(treedef, moved)) <= most)

    good = [name for i, name in enumerate(names) if alone(i)]
    bad = [name for name in names if name not in good]
    words = ", ".join(bad) if bad else " and ".join(names) + " together"
    advice = "freeze all but what it is affine in"
    if bad and good:
        where = [name.removeprefix("network.") for name in good]
        advice = f"freeze those, px.Model(…, where={where}, rest='frozen')"
    raise ValueError(
        f"network: it is not affine in {words}, so that the posterior has no closed form: "
        f"{advice}, or use {instead}"
    )


@compiled
def _bend(model: Model, x: PyTree, a: Parameters, b: Parameters) -> jax.Array:
    with jax.default_matmul_precision("highest"):
        return bend(model, model.network.state, x, a, b)
