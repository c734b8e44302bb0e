r"""A model: network + prior + likelihood, and the joint density they define.

log p(D, w) = log p(w) + Σₙ weightₙ · log p(yₙ | f(xₙ; w))
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import KeyPath
from jax.typing import DTypeLike
from jaxtyping import PyTree
from numpy.typing import ArrayLike
from numpyro.distributions import Distribution

from ._util.admit import admit, admit_inputs, cast
from ._util.checks import one_of
from ._util.tree import named_leaves, path_name, tree_size
from .data import float_dtype
from .likelihoods import Likelihood
from .networks import Network, as_network
from .networks.base import module_of
from .networks.parts import FrozenNetwork, Where, select
from .networks.sparse import SparseNetwork, check_masks, freeze, sparse, take
from .priors import Flat, Gaussian, PerWeight, Prior, Trained, as_prior, is_flat, is_prior
from .program.reuse import uses


class Parameters(NamedTuple):
    """Everything that is uncertain: the network's weights and the likelihood's own parameters."""

    network: Any
    likelihood: Any


class Model(eqx.Module):
    r"""A network whose weights have a prior, and a likelihood for its outputs.

    Args:
        network: an Equinox module (``(module, state)`` for a stateful one), a Flax NNX module, or
            a plain pair ``(params, apply)``.
        prior: a prior of ``px.priors``, or any numpyro distribution over the real line.
        likelihood: one of ``px.likelihoods``.
        where: which of the network's weights are uncertain (default: all): a pattern over their
            names (``"head.*"``; ``"*.weight"``, or ``"*.kernel"`` in Flax, for all but biases),
            several of which each must match, or a function of (name, array).
        rest: what becomes of the weights that ``where`` leaves out: ``"point"``, trained without a
            prior by methods that optimise, or ``"frozen"``, left as they are.
        compute_dtype: precision of the network's forward and backward pass, for instance
            ``"bfloat16"`` on an accelerator; parameters keep their own.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> model = px.Model(
        ...     px.networks.MLP(1, 1, (8,), key=0),
        ...     prior=px.priors.Gaussian(1.0),
        ...     likelihood=px.likelihoods.Gaussian(noise=0.1),
        ... )
        >>> x, y = jnp.ones((3, 1)), jnp.zeros((3, 1))
        >>> model.log_joint(model.parameters, x, y).shape
        ()
    """

    network: Network
    prior: Prior
    likelihood: Likelihood
    priors: Parameters
    parameters: Parameters
    compute_dtype: str | None = eqx.field(static=True)

    def __init__(
        self,
        network: PyTree,
        prior: Prior | Distribution | None = None,
        likelihood: Likelihood | None = None,
        *,
        where: Where | None = None,
        rest: str = "point",
        compute_dtype: str | None = None,
    ):
        network = as_network(network)
        if not jax.tree.leaves(network.params):
            raise ValueError("network has no floating point parameters to be uncertain about")
        one_of("rest", rest, ("point", "frozen"))
        if where is None and rest == "frozen":
            raise ValueError("rest='frozen' needs where=, the weights that are not frozen")
        chosen = None if where is None else select(network.params, where)
        if chosen is not None and rest == "frozen":
            network, chosen = freeze(network, chosen), None
        self.network = network
        if not isinstance(likelihood, Likelihood):
            raise TypeError(
                f"likelihood must be one of px.likelihoods, got {type(likelihood).__name__}"
            )
        self.prior = as_prior(Gaussian(1.0) if prior is None else prior)
        if isinstance(self.prior, Trained):
            scale = self.prior.deviations(network.params)
            self.prior = PerWeight(Parameters(network.params, None), Parameters(scale, None))
        if isinstance(self.prior, PerWeight) and isinstance(network, SparseNetwork):
            # of a posterior of the dense network: what it says of the weights that remain
            self.prior = self.prior.map_network(network.restrict)
        self.likelihood = likelihood
        self.compute_dtype = None if compute_dtype is None else _float_name(compute_dtype)
        # the likelihood's parameters need the shape of the targets, which the data will tell
        self.parameters = Parameters(self.network.params, {})
        priors = network.resolve(self.prior)
        if chosen is not None:
            priors = jax.tree.map(
                lambda prior, c: prior if c else Flat(), priors, chosen, is_leaf=is_prior
            )
        self.priors = Parameters(priors, {})

    def for_data(self, y: np.ndarray, weight: np.ndarray) -> "Model":
        """The same model with what its likelihood takes from the targets of a fit."""
        likelihood = self.likelihood.for_data(y, weight)
        return self if likelihood is self.likelihood else self._with(likelihood=likelihood)

    def for_targets(self, target_shape: tuple[int, ...], dtype: DTypeLike) -> "Model":
        """The same model with the likelihood's parameters made, in the precision of the fit."""
        to = lambda tree: jax.tree.map(lambda a: jnp.asarray(a, dtype), tree)  # noqa: E731
        network = eqx.tree_at(lambda n: n.params, self.network, to(self.network.params))
        own = to(self.likelihood.init(target_shape))
        if isinstance(self.prior, PerWeight) and self.prior.loc.likelihood is not None:
            own_priors = self.prior.resolve_likelihood()
        else:
            own_priors = self.likelihood.priors(own)
        parameters = Parameters(network.params, own)
        priors = self.priors._replace(likelihood=own_priors)
        return self._with(network=network, parameters=parameters, priors=priors)

    def _with(self, **parts: Any) -> "Model":
        """The same model with other parts, of which it makes nothing anew."""
        is_leaf = lambda node: isinstance(node, dict | Prior)  # noqa: E731
        where = lambda m: [getattr(m, name) for name in parts]  # noqa: E731
        return eqx.tree_at(where, self, list(parts.values()), is_leaf=is_leaf)

    def sparse(self, mask: PyTree) -> "Model":
        """The same model without the weights that a mask leaves out: those are the constant 0.

        Unlike a model of ``px.networks.sparse`` it has the precision and the likelihood's
        parameters of the fit; see there for ``mask``.
        """
        masks = check_masks(mask, self.network)
        network = sparse(self.network, masks)

        def restricted(path: KeyPath, w: jax.Array, prior: Prior) -> Prior:
            mask = masks.get(path_name(path))
            return prior if mask is None else prior.restrict(w.shape, np.flatnonzero(mask))

        priors = jax.tree_util.tree_map_with_path(
            restricted, self.network.params, self.priors.network
        )
        prior = self.prior
        if isinstance(prior, PerWeight):
            prior = prior.map_network(lambda tree: take(tree, masks))
        return self._with(
            network=network,
            prior=prior,
            parameters=self.parameters._replace(network=network.params),
            priors=self.priors._replace(network=priors),
        )

    def unfolded(self) -> tuple["Model", Callable[[Parameters], Parameters]]:
        """A model whose network does no more to its weights than it must, and what was done.

        That of a pruned model has all weights: its function puts those that remain, or anything
        else there is for each of them, where they belong among zeros.
        """
        inner, unfold = self.network.unfolded()
        return self._with(network=inner), lambda tree: tree._replace(network=unfold(tree.network))

    def init(self, key: jax.Array) -> Parameters:
        """A fresh start for all parameters."""
        return Parameters(self.network.init(key), self.parameters.likelihood)

    def apply(
        self,
        params: Parameters,
        state: PyTree,
        x: PyTree,
        key: jax.Array | None,
        training: bool,
        dropout: bool | None = None,
    ) -> tuple[jax.Array, Any]:
        """Outputs of the network for a batch, and its state after it; see ``Network.apply``."""
        weights = params.network
        inputs, _ = self.likelihood.split(x)
        if self.compute_dtype is not None:
            low = jnp.dtype(self.compute_dtype)
            weights = jax.tree.map(lambda a: a.astype(low), weights)
            inputs = jax.tree.map(lambda a: cast(a, low), inputs)
        outputs, state = self.network.apply(weights, state, inputs, key, training, dropout)
        if self.compute_dtype is not None:
            outputs = outputs.astype(jax.tree.leaves(params)[0].dtype)
        return outputs, state

    def log_prior(self, params: Parameters) -> jax.Array:
        """log p(w), summed over all parameters."""
        terms = jax.tree.map(
            lambda prior, w: jnp.sum(prior.log_prob(w)), self.priors, params, is_leaf=is_prior
        )
        return jax.tree.reduce(jnp.add, terms)

    def log_likelihood(
        self,
        params: Parameters,
        x: PyTree,
        y: ArrayLike,
        weight: Any = None,
        *,
        key: jax.Array | None = None,
        state: PyTree = None,
    ) -> jax.Array:
        """Σₙ weightₙ · log p(yₙ | xₙ, w)."""
        per_example = self.pointwise(params, x, y, key=key, state=state)
        return jnp.sum(per_example if weight is None else weight * per_example)

    def pointwise(
        self,
        params: Parameters,
        x: PyTree,
        y: ArrayLike,
        *,
        key: jax.Array | None = None,
        state: PyTree = None,
    ) -> jax.Array:
        """log p(yₙ | xₙ, w) of each example, the network in prediction mode."""
        state = self.network.state if state is None else state
        dtype = float_dtype(x := admit_inputs(x), params)
        x, y = admit_inputs(x, dtype), admit(y, "y", dtype)
        outputs, _ = self.apply(params, state, x, key, training=False)
        return self.likelihood_of(params, outputs, x, y)

    def likelihood_of(
        self, params: Parameters, outputs: jax.Array, x: PyTree, y: ArrayLike
    ) -> jax.Array:
        """log p(yₙ | outputsₙ) of each example."""
        _, side = self.likelihood.split(x)
        y = jnp.asarray(admit(y, "y"))
        if jnp.issubdtype(y.dtype, jnp.integer) and self.likelihood.kind != "classification":
            y = y.astype(jnp.promote_types(y.dtype, jnp.int32))  # y + 1 of uint8 would wrap
        # (N,) and (N, 1) are one target alike; what does not fit is refused, never broadcast
        y = y.reshape(len(y), *self.likelihood.check(outputs.shape, y))
        return self.likelihood.log_prob(outputs, y, params.likelihood, side)

    def log_joint(
        self, params: Parameters, x: PyTree, y: ArrayLike, weight: Any = None
    ) -> jax.Array:
        """log p(D, w) = log p(w) + log p(D | w)."""
        return self.log_prior(params) + self.log_likelihood(params, x, y, weight)

    def sample_prior(self, key: jax.Array) -> Parameters:
        """One draw of all parameters from the prior."""
        priors, values = self.prior_of_each(), jax.tree.leaves(self.parameters)
        keys = jax.random.split(key, len(priors))
        return self.tree_of(
            # what has no prior is what it is
            value if is_flat(prior) else prior.sample(k, value.shape, value.dtype)
            for prior, value, k in zip(priors, values, keys, strict=True)
        )

    def prior_of_each(self) -> list[Prior]:
        """The prior of every array of the parameters, in order."""
        return jax.tree.leaves(self.priors, is_leaf=is_prior)

    def tree_of(self, leaves: Iterable[Any]) -> Parameters:
        """A tree like the parameters with one value, or ``None``, for every array, in order."""
        return jax.tree.unflatten(jax.tree.structure(self.priors, is_leaf=is_prior), leaves)

    def bayesian(self, tree: Parameters) -> Parameters:
        """A tree like the parameters with ``None`` for those that are points."""
        return jax.tree.map(
            lambda prior, value: None if is_flat(prior) else value,
            self.priors, tree, is_leaf=is_prior,
        )  # fmt: skip

    @property
    def bayesian_size(self) -> int:
        """How many parameters have a prior, and so a posterior."""
        return tree_size(self.bayesian(self.parameters))

    def chosen(self) -> tuple[list[str], str]:
        """The weights that ``where`` chose, by name, and what the rest is (``"none"``: no rest)."""
        if isinstance(self.network.dense(), FrozenNetwork):
            return list(named_leaves(self.network.params)), "frozen"
        names = list(named_leaves(self.bayesian(self.parameters).network))
        return names, "none" if len(names) == len(jax.tree.leaves(self.network.params)) else "point"

    def output_shape(self, x: PyTree) -> tuple[int, ...]:
        """The shape of the outputs for inputs ``x``, or an error that says why they do not fit."""
        inputs, side = self.likelihood.split(x)
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(inputs)]
        shown = ", ".join(map(str, shapes))
        if not shapes or any(len(shape) == 0 or shape[0] != shapes[0][0] for shape in shapes):
            raise ValueError(f"x must have one row per example, got shape {shown or 'of nothing'}")
        n = shapes[0][0]
        canonical = jax.dtypes.canonicalize_dtype
        probe = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, canonical(a.dtype)), inputs)
        try:
            shape = self.network.output_shape(probe)
        except (TypeError, ValueError) as error:
            raise ValueError(f"x of shape {shown} does not fit the network: {error}") from error
        if len(shape) == 0 or shape[0] != n:
            raise ValueError(
                f"network: the output for {n} examples has shape {shape}; its first axis must be "
                "the examples"
            )
        self.network.check_inputs(inputs)
        if side is not None and (np.size(side) != n or not np.all(np.asarray(side) > 0)):
            raise ValueError(
                f"x: the exposure must be positive, one for each of {n} examples, got shape "
                f"{np.shape(side)} and a smallest value of {np.min(side, initial=np.inf):g}"
            )
        return shape

    def check(self, x: PyTree, y: ArrayLike) -> tuple[int, ...]:
        """Check that network, likelihood and data fit; returns the shape of one target."""
        output_shape = self.output_shape(x)
        target = self.likelihood.check(output_shape, y)
        self.likelihood.check_values(np.asarray(y), output_shape)
        return target

    def fingerprint(self) -> str:
        """A hash of the network's tree, to recognise it when a file is loaded."""
        return self.network.fingerprint()

    def __repr__(self) -> str:
        parts = [describe(part) for part in (self.prior, self.likelihood)]
        prior, likelihood = (part if len(part) <= 60 else part.split("(")[0] for part in parts)
        weights = f"{self.network_name()} of {tree_size(self.parameters):,} weights"
        return f"Model({weights}, prior={prior}, likelihood={likelihood})"

    def network_name(self) -> str:
        """The class of the network, as it was given where that is known."""
        module = module_of(self.network)
        return type(self.network if module is None else module).__name__

    def summary(self, x: PyTree = None) -> str:
        """A table of the parameters, their priors, and how many numbers inference will hold.

        Args:
            x: example inputs; with them the table also says how the network uses each weight,
                and so which estimators of ``px.BayesByBackprop`` reach it.

        Example:
            >>> import jax.numpy as jnp
            >>> import posterax as px
            >>> model = px.Model(
            ...     px.networks.MLP(1, 1, (8,), key=0), likelihood=px.likelihoods.Gaussian(0.1)
            ... )
            >>> print(model.summary(jnp.ones((3, 1))))
            parameter ... weights  use
            ...
            network.layers.0.weight  8 × 1  Gaussian(scale=1)        8  product (local, flipout)
            network.layers.0.bias    8      Gaussian(scale=1)        8  other: sampled
            ...
        """
        leaves = jax.tree_util.tree_leaves_with_path(self.parameters)
        use = {} if x is None else {"parameter": "  use", **_uses(self, x)}
        rows = [("parameter", "shape", "prior", "weights")]
        for (path, leaf), prior in zip(leaves, self.prior_of_each(), strict=True):
            shape = " × ".join(map(str, leaf.shape)) or "scalar"
            rows.append((path_name(path), shape, describe(prior), f"{leaf.size:,}"))
        a, b, c, d = (max(map(len, column)) for column in zip(*rows, strict=True))
        lines = [
            f"{name:<{a}}  {shape:<{b}}  {prior:<{c}}  {size:>{d}}{use.get(name, '')}"
            for name, shape, prior, size in rows
        ]
        rule = "-" * max(map(len, lines))
        total, frozen = tree_size(self.parameters), tree_size(self.network.frozen())
        points = self.bayesian_size < total
        return "\n".join(
            [
                *[lines[0], rule, *lines[1:], rule],
                f"{total:,} weights, {total + self.bayesian_size:,} variational parameters (a mean "
                "and a deviation each" + (", a mean only for points)" if points else ")"),
                *([f"{frozen:,} more weights are frozen"] if frozen else []),
                f"likelihood: {describe(self.likelihood)}",
            ]
        )


_USES = {
    "product": "product (local, flipout)", "loop": "in a loop: sampled", "unused": "unused",
}  # fmt: skip


def _uses(model: Model, x: PyTree) -> dict[str, str]:
    """By name: how the network uses each parameter for inputs ``x``, in words."""
    model.output_shape(x)  # says what is wrong where x does not fit
    inner, unfold = model.unfolded()

    def network(weights: PyTree, x: PyTree, state: PyTree) -> Any:
        return inner.apply(Parameters(weights, None), state, x, jax.random.key(0), training=True)

    kinds = uses(network, unfold(model.parameters).network, x, model.network.state)
    own = jax.tree.map(lambda _: "likelihood", model.parameters.likelihood)
    leaves = jax.tree_util.tree_leaves_with_path(Parameters(kinds, own))
    return {
        path_name(path): "  point" if is_flat(prior) else "  " + _USES.get(kind, f"{kind}: sampled")
        for (path, kind), prior in zip(leaves, model.prior_of_each(), strict=True)
    }


def describe(module: eqx.Module) -> str:
    """A prior or likelihood as its call, numbers rounded."""
    parts = []
    for name, value in vars(module).items():
        if value is None or name in ("initial", "params", "cholesky") or callable(value):
            continue
        if isinstance(value, np.ndarray | jax.Array):
            value = f"{float(value):.4g}" if np.ndim(value) == 0 else f"array{np.shape(value)}"
            if name == "loc" and value == "0":
                continue
        elif value is False:
            continue
        parts.append(f"{name}={value}")
    return f"{type(module).__name__}({', '.join(parts)})"


def _float_name(dtype: DTypeLike) -> str:
    try:
        if jnp.issubdtype(np.dtype(dtype), jnp.floating):
            return np.dtype(dtype).name
    except TypeError:
        pass
    raise ValueError(
        f"compute_dtype must be a type of floats such as 'bfloat16', got {str(dtype)[:40]!r}"
    )
