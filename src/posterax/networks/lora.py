r"""Low-rank additions to the weights of a network that stays as it is."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax.tree_util import KeyPath
from jaxtyping import PyTree

from .._util.checks import whole_number
from .._util.keys import KeyLike, as_key
from .._util.tree import named_leaves, path_name
from .adapters import as_network
from .base import Wrapper, with_params
from .mlp import initial_normal
from .parts import Where, select


class LowRank(Wrapper):
    """A network with W + U D in place of each chosen weight W; only U and D are parameters."""

    fixed: Any  # W, the weights that the additions go to, and all others

    def inner(self, params: PyTree) -> Any:
        dtype = jax.tree.leaves(params)[0].dtype

        def add(path: KeyPath, w: jax.Array) -> jax.Array:
            pair = params.get(path_name(path))
            w = w.astype(dtype)
            return w if pair is None else w + (pair["up"] @ pair["down"]).reshape(w.shape)

        return jtu.tree_map_with_path(add, self.fixed)

    def frozen(self) -> Any:
        return self.fixed, self.network.frozen()


def is_matrix(name: str, w: jax.Array) -> bool:
    """Whether a weight is a matrix or a kernel; the biases of convolutions are (channels, 1, 1).

    Example:
        >>> import numpy as np
        >>> from posterax.networks.lora import is_matrix
        >>> is_matrix("conv.bias", np.ones((8, 1, 1))), is_matrix("conv.weight", np.ones((8, 1, 3)))
        (False, True)
    """
    thin = w.ndim > 2 and w.size == w.shape[0]
    return w.ndim > 1 and not thin and "bias" not in name.rpartition(".")[2]


def low_rank(network: PyTree, rank: int = 4, where: Where = is_matrix, *, key: KeyLike) -> LowRank:
    r"""Leave a trained network as it is and learn additions of low rank to its weights.

    Each chosen weight, seen as a matrix W of m rows, becomes W + U D with U (m × rank) starting
    at zero and D (rank × n) at N(0, 1/n): at first the network is what it was. As the network of
    a model, the additions are what is uncertain, and the file holds them alone; it loads with
    ``px.load(path, model=model)`` over the same trained weights and no others.

    Args:
        network: any network a model takes, trained.
        rank: of the additions.
        where: which weights get one (default: matrices and kernels, no biases).
        key: an int or a JAX key.

    Example:
        >>> import posterax as px
        >>> trained = px.networks.MLP(10, 1, (20,), key=0)
        >>> network = px.networks.low_rank(trained, rank=2, key=1)
        >>> model = px.Model(network, px.priors.Gaussian(0.1), px.likelihoods.Gaussian(0.1))
        >>> model.bayesian_size  # (20 + 10) × 2 and (1 + 20) × 2
        102

    Reference:
        Hu et al., *LoRA: low-rank adaptation of large language models*, ICLR 2022.
    """
    rank = whole_number("rank", rank)
    base = as_network(network)
    chosen = eqx.filter(base.params, select(base.params, where))
    weights = named_leaves(chosen).items()
    params = {}
    for (name, w), k in zip(weights, jax.random.split(as_key(key), len(weights)), strict=True):
        if w.ndim < 2:
            raise ValueError(f"where chooses {name}, which has one axis: no matrix to add to")
        rows, columns = w.shape[0], w.size // w.shape[0]
        down = initial_normal(k, (rank, columns)) / columns**0.5
        params[name] = {"up": jnp.zeros((rows, rank), w.dtype), "down": down.astype(w.dtype)}
    return LowRank(params, base.state, with_params(base, None), base.params)
