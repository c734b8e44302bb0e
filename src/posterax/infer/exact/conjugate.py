r"""Conjugate models: where Bayes' rule is linear algebra, and nothing is left to approximate.

    y = f(x; w) + ε,   f(x; w) = f(x; m₀) + J(x) (w − m₀),   ε ~ N(0, R),   w ~ N(m₀, S₀)

A network that is affine in its random weights, a Gaussian prior of known scale and Gaussian noise
of known size: the posterior is Gaussian, and its integral the exact evidence. What the data say is
in sums that grow from batch to batch, Σₙ weightₙ [J r]ᵀ R⁻¹ [J r] with r = y − f(x; 0).
"""

import math
import warnings
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.flatten_util import ravel_pytree
from jaxtyping import PyTree

from ... import likelihoods
from ..._util.tree import named_leaves
from ...data import Batch, Data
from ...likelihoods import Likelihood
from ...model import Model, Parameters
from ...posteriors import Evidence, FullGaussian, Posterior
from ...posteriors.correlated import refuse_large_covariance
from ...priors import Gaussian, is_flat, is_prior
from ...priors.base import LOG_2PI
from ..base import Draw, History, Info, Method, Needs, Phase, Plan, Start
from ..laplace.curvature import REST, add_products, in_parts
from .affine import bend, probes, refuse_bent, tolerance

INSTEAD = "px.Laplace, px.NUTS or px.BayesByBackprop"
MATRICES = 10  # of weights by weights, while a batch is added and at the end


class Sums(NamedTuple):
    """Products summed over the examples so far, and how far the network was from affine there."""

    products: dict[str, jax.Array]
    bend: jax.Array
    step: jax.Array
    state: PyTree


class Regression(Phase):
    """One pass over the data, the network in prediction mode.

    ``noise`` is R^½, a deviation for each output or a lower triangle: as two arrays, since what is
    traced may be rounded to float32, and their sum is as good as float64. ``probes`` are weights at
    which the network is tried.
    """

    noise: tuple[PyTree, PyTree]
    probes: tuple[Parameters, Parameters]

    title: ClassVar[str] = "summing"
    finishes: ClassVar[Any] = "at the end"

    def length(self) -> int:
        return int(self.plan.batches)

    def init(self, start: Start, data: Data | None, key: jax.Array) -> Sums:
        first = jax.tree.leaves(self.model.parameters)[0]
        size = self.model.bayesian_size + 2
        zeros = {name: jnp.zeros((size, size), first.dtype) for name in ("matrix", "matrix" + REST)}
        nothing = jnp.zeros((), first.dtype)
        return Sums(zeros, nothing, jnp.zeros((), jnp.int32), start.state)

    def step(self, state: Sums, batch: Batch, key: jax.Array) -> tuple[Sums, Info]:
        rows, outputs = len(batch.weight), math.prod(batch.y.shape[1:])
        index = in_parts(rows, outputs * len(state.products["matrix"]))
        # rows that fill up the last part count nothing
        weight = jnp.where(index < rows, batch.weight[index % rows], 0)

        def part(products: PyTree, given: PyTree) -> tuple[PyTree, None]:
            index, weight = given
            x, y = jax.tree.map(lambda a: a[index % rows], (batch.x, batch.y))
            return add_products(products, "matrix", self._rows(state.state, x, y, weight)), None

        # what rounding a matrix product to fewer bits would lose, no later sum finds again
        with jax.default_matmul_precision("highest"):
            products, _ = jax.lax.scan(part, state.products, (index, weight))
            bent = bend(self.model, state.state, batch.x, *self.probes)
        new = Sums(products, jnp.maximum(state.bend, bent), state.step + 1, state.state)
        # whatever is not finite in a sum shows in its trace
        return new, Info({"trace": jnp.trace(products["matrix"])})

    def _rows(self, state: PyTree, x: PyTree, y: jax.Array, weight: jax.Array) -> jax.Array:
        """√weight R^-½ [J  r], a row for each output of each example, and last √weight alone."""
        model = self.model
        # where an affine function loses least to rounding
        origin = jax.tree.map(jnp.zeros_like, model.parameters.network)

        def outputs(weights: PyTree, x: PyTree) -> jax.Array:
            x = jax.tree.map(lambda a: a[None], x)
            return model.apply(Parameters(weights, {}), state, x, None, False)[0].reshape(-1)

        count = math.prod(y.shape[1:])
        derivative = jax.jacrev if count <= model.bayesian_size else jax.jacfwd

        def one(x: PyTree) -> tuple[jax.Array, jax.Array]:
            slopes = jax.tree.leaves(derivative(outputs)(origin, x))
            columns = [a.reshape(count, -1) for a in slopes]
            return outputs(origin, x), jnp.concatenate(columns, axis=1)

        f, jacobian = jax.vmap(one)(x)
        with jax.enable_x64(True):
            f, jacobian, y, weight = (a.astype(float) for a in (f, jacobian, y, weight))
            both = jnp.concatenate([jacobian, (y.reshape(f.shape) - f)[..., None]], axis=2)
            high, low = (part.astype(float) for part in self.noise)
            both = _whitened(high + low, both)
            # so that the last entry of the sum of products is the weight of all examples
            ones = jnp.full((*f.shape, 1), 1 / math.sqrt(count))
            rows = jnp.sqrt(weight)[:, None, None] * jnp.concatenate([both, ones], axis=2)
            return rows.reshape(-1, rows.shape[2])

    def explain(self, state: Sums, history: History, term: str | None = None) -> str | None:
        return (
            term
            and "the network's outputs or derivatives overflow; scale the inputs, or fit in float64"
        )

    def finish(self, state: Sums, draws: Draw | None) -> Posterior:
        model, d = self.model, self.model.bayesian_size
        if float(state.bend) > tolerance(model):
            raise ValueError(
                "network: at these inputs it is not affine in its weights, so the posterior has no "
                f"closed form; use {INSTEAD}"
            )
        total = sum(np.asarray(part, np.float64) for part in state.products.values())
        assert isinstance(total, np.ndarray)
        loc, scale = _prior(model)
        products, towards, square = total[:d, :d], total[:d, d], total[d, d]
        # r = y − f(x; m₀), as it is from here on
        square += loc @ (products @ loc - 2 * towards)
        towards = scale * (towards - products @ loc)
        gram = scale[:, None] * products * scale + np.eye(d)
        try:
            # by the last weight first: gram = U Uᵀ, and U⁻ᵀ is a lower triangle
            upper = scipy.linalg.cholesky(gram[::-1, ::-1], lower=True)[::-1, ::-1]
        except np.linalg.LinAlgError:
            raise FloatingPointError(
                "noise: so small against what the prior allows that the posterior's precision is "
                "singular in float64; give a larger noise, or a narrower prior"
            ) from None
        root = scipy.linalg.solve_triangular(upper, np.eye(d)).T
        explained = root.T @ towards
        flat, unravel = ravel_pytree(model.parameters)
        noise = np.add(*(np.asarray(part, np.float64) for part in self.noise))
        noise = noise if noise.ndim == 1 else np.diag(noise)
        each = -0.5 * LOG_2PI * len(noise) - np.sum(np.log(noise))
        value = total[-1, -1] * each - 0.5 * (square - explained @ explained)
        value -= np.sum(np.log(np.diag(upper)))
        complete = int(state.step) >= self.length()
        if not complete:
            warnings.warn(
                f"{int(state.step)} of {self.length()} batches were summed: the posterior is that "
                "of those; go on with px.fit(…, resume=posterior)",
                stacklevel=2,
            )
        return FullGaussian(
            model,
            state.state,
            self.plan.targets,
            mu=unravel(jnp.asarray(loc + scale * (root @ explained), flat.dtype)),
            cholesky=jnp.asarray(scale[:, None] * root, flat.dtype),
            evidence=Evidence(float(value), 0.0, "exact") if complete else None,
        )


class Conjugate(Method):
    r"""The exact posterior, and the exact evidence, of a network that is affine in its weights.

        p(w | D) = N(w | m, S),  S⁻¹ = S₀⁻¹ + Σₙ Jₙᵀ R⁻¹ Jₙ,  m = m₀ + S Σₙ Jₙᵀ R⁻¹ (yₙ − f(xₙ; m₀))

        log p(D) = log N(y | f(x; m₀), R + J S₀ Jᵀ)

    For linear and polynomial regression, and for any network of which only the last layer is
    random (``px.Model(…, where="layers.2.*", rest="frozen")``): whatever is frozen makes features
    and may do anything. Priors must be Gaussian, of a scale that is known, and the likelihood
    ``Gaussian`` or ``MultivariateGaussian`` with noise that is known. Anything else is refused,
    with what is not conjugate.

    One pass over the data, in batches or from a stream; ``fit`` takes neither ``steps`` nor
    ``epochs``. Sums are in float64 whatever the precision of the network. There is nothing to tune.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.array([[0.0], [1.0], [2.0]], "float32")
        >>> line = px.networks.MLP(1, 1, (), key=0)
        >>> model = px.Model(line, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise=1.0))
        >>> posterior = px.fit(model, (x, 1 + x[:, 0]), px.Conjugate())
        >>> print(posterior.moments()[0].network.layers[0].weight.round(3))
        [[0.933]]
        >>> value, error, kind = posterior.log_evidence
        >>> round(value, 3), error, kind
        (-4.978, 0.0, 'exact')

    Reference:
        Bishop, *Pattern recognition and machine learning*, 2006, sections 3.3 and 3.5; MacKay,
        *Bayesian interpolation*, Neural Computation 1992.
    """

    needs = Needs("nothing", no_start="has its answer in closed form; leave init out")

    def phases(self, model: Model, plan: Plan) -> list[Phase]:
        _check_likelihood(model.likelihood)
        _check_priors(model)
        refuse_large_covariance(
            model, "px.Conjugate", "px.Laplace(structure='kronecker') needs less", MATRICES
        )
        refuse_bent(model, plan.inputs, INSTEAD)
        likelihood: PyTree = model.likelihood
        if isinstance(likelihood, likelihoods.MultivariateGaussian):
            noise = np.asarray(likelihood.cholesky)
        else:
            noise = np.broadcast_to(likelihood.noise, plan.targets.inner).reshape(-1)
        high = noise.astype(np.float32)
        both = high, (noise - high).astype(np.float32)
        return [Regression(model, plan, both, probes(model, 1))]


def _prior(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """m₀, and the root of S₀, which is diagonal: each one vector."""
    priors = jax.tree.leaves(model.priors, is_leaf=is_prior)
    shapes = [w.shape for w in jax.tree.leaves(model.parameters)]

    def flat(name: str) -> np.ndarray:
        values = [np.asarray(getattr(prior, name), np.float64) for prior in priors]
        parts = zip(values, shapes, strict=True)
        return np.concatenate([np.broadcast_to(v, shape).reshape(-1) for v, shape in parts])

    return flat("loc"), flat("scale")


def _whitened(noise: jax.Array, rows: jax.Array) -> jax.Array:
    """R^-½ times the rows (examples, outputs, columns)."""
    if noise.ndim == 1:
        return rows / noise[:, None]
    return jax.vmap(lambda a: jax.scipy.linalg.solve_triangular(noise, a, lower=True))(rows)


def _check_likelihood(likelihood: Likelihood) -> None:
    name = type(likelihood).__name__
    if type(likelihood) not in (likelihoods.Gaussian, likelihoods.MultivariateGaussian):
        raise ValueError(
            f"likelihood: {name} is not conjugate to a Gaussian prior; give "
            f"px.likelihoods.Gaussian or MultivariateGaussian, or use {INSTEAD}"
        )
    word = "noise" if isinstance(likelihood, likelihoods.Gaussian) else "covariance"
    value = getattr(likelihood, word)
    if isinstance(value, str):
        raise ValueError(
            f"likelihood: {word}={value!r} is not known, so the posterior has no closed form: "
            f"give px.likelihoods.{name} numbers, or use {INSTEAD}"
        )


def _check_priors(model: Model) -> None:
    for name, prior in named_leaves(model.priors, is_leaf=is_prior).items():
        if is_flat(prior):
            raise ValueError(
                f"prior: {name} has none, and px.Conjugate trains no weights: give it a prior, or "
                "the model rest='frozen'"
            )
        if type(prior) is not Gaussian:
            raise ValueError(
                f"prior: {type(prior).__name__}, that of {name}, is not conjugate; give "
                f"px.priors.Gaussian for all weights, or use {INSTEAD}"
            )
