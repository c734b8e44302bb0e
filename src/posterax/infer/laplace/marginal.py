r"""From curvature to a Gaussian: H + P and its determinant, and how strong the prior P should be.

Every block is whitened by its prior and rotated to its eigenvectors,

    H + P = P^½ U (1 + diag λ) Uᵀ P^½

(U = U_a ⊗ U_g for Kronecker factors, whose eigenvalues are products; U = 1 for a diagonal), so that
the covariance, its root and the determinant are at hand and no rounding can make one negative. All
in float64: an error of float32 in the largest λ is larger than what the prior knows.

The log evidence of the Laplace approximation, with the prior's precision multiplied by τ,

    log p(D) ≈ log p(D | w*) + log p(w* | τ) + D/2 log 2π − ½ log |H + τP|

has its maximum in τ, w* and H held fixed, where τ (w* − m)ᵀ P (w* − m) = γ(τ) = Σ λ/(λ + τ), the
number of weights that the data determine (MacKay 1992).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from ...model import Model, Parameters
from ...posteriors.laplace import as_matrix
from ...priors import Gaussian, Prior, is_prior
from ...priors.base import LOG_2PI
from ...program.compiled import compiled
from .curvature import Block, Sums, with_rest

ITERATIONS, CLOSE = 100, 1e-5
WIDEST = 23.0  # log τ stays within ± this: e^23 is 10^10


class Spectrum(NamedTuple):
    """A block whitened by its prior: scales P^-½, eigenvectors U, eigenvalues λ."""

    scales: tuple[jax.Array, ...]
    bases: tuple[jax.Array, ...]
    values: jax.Array

    def strengthened(self, tau: jax.Array) -> "Spectrum":
        """The same for a prior of τ times the precision."""
        root = jnp.sqrt(tau)
        return Spectrum((self.scales[0] / root, *self.scales[1:]), self.bases, self.values / tau)


def prior_precision(prior: Prior, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    r"""P and the centre m of a prior, one for each weight.

    1/scale² for a Gaussian. Other priors (``ScaleMixture``, ``Laplace``, ``Hierarchical``, a
    Student t) curve down and up again, so that −∂² log p can be negative or nothing at all;
    −(∂ log p/∂w) / (w − m) takes its place. For a scale mixture of Gaussians, which all of these
    are, it is the mean precision of the mixture given w: the curvature of the Gaussian that touches
    the prior at w from below. It is positive wherever the prior falls off from m.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> from posterax.infer.laplace.marginal import prior_precision
        >>> print(prior_precision(px.priors.Gaussian(0.5), jnp.ones(1))[0])
        [4.]
        >>> print(prior_precision(px.priors.Laplace(0.5), jnp.ones(1))[0])
        [2.]
    """
    if isinstance(prior, Gaussian):
        loc, scale = (jnp.asarray(v, w.dtype) for v in (prior.loc, prior.scale))
        return jnp.broadcast_to(1 / jnp.square(scale), w.shape), jnp.broadcast_to(loc, w.shape)
    centre = jnp.asarray(getattr(getattr(prior, "distribution", None), "loc", 0.0), w.dtype)
    away = jnp.where(jnp.abs(w - centre) < 1e-6, 1e-6, w - centre)
    score = jax.grad(lambda w: jnp.sum(prior.log_prob(w)))(centre + away)
    return -score / away, jnp.broadcast_to(centre, w.shape)


def spectrum(
    block: Block, sums: dict[str, jax.Array], scale: jax.Array, precision: list[jax.Array]
) -> Spectrum:
    """The spectrum of a block.

    Args:
        block: the block.
        sums: its sums over the data.
        scale: what they are multiplied by: N over the examples seen.
        precision: P of its weights, an array for each.
    """
    flat = jnp.concatenate([p.reshape(-1) for p in precision])
    if block.kind == "diagonal":
        root = jax.lax.rsqrt(precision[0])
        return Spectrum((root,), (), scale * sums["diagonal"] / precision[0])
    if block.kind == "dense":
        root = jax.lax.rsqrt(flat)
        values, basis = jnp.linalg.eigh(scale * root[:, None] * sums["matrix"] * root)
        return Spectrum((root,), (basis,), jnp.maximum(values, 0))
    # the precision as a product of one factor for each input and one for each output: exact where
    # all weights share one, or all of an input or an output do
    assert block.site is not None
    logs = jnp.log(as_matrix(precision[0], block.site.order, block.site.inputs))
    rows, middle = jnp.mean(logs, axis=1), jnp.mean(logs) / 2
    scales = jnp.exp(-0.5 * (rows - middle)), jnp.exp(-0.5 * (jnp.mean(logs, axis=0) - middle))
    (a, of_inputs), (g, of_outputs) = (
        jnp.linalg.eigh(root[:, None] * sums[name] * root)
        for root, name in zip(scales, ("inputs", "outputs"), strict=True)
    )
    values = scale * jnp.maximum(a, 0)[:, None] * jnp.maximum(g, 0)
    return Spectrum(scales, (of_inputs, of_outputs), values)


def best_precision(
    blocks: tuple[Block, ...],
    spectra: dict[str, Spectrum],
    sums: Sums,
    scale: dict[str, jax.Array],
    precision: dict[int, jax.Array],
    squares: dict[int, jax.Array],
    each: bool,
) -> dict[int, jax.Array]:
    r"""τ of the network's arrays, by index: what maximises the evidence, w* and H held fixed.

    log τ moves half of the way to log(γ(τ) / (w* − m)ᵀ P (w* − m)). One τ alone converges at least
    at the rate ½, since d log γ / d log τ lies between −1 and 0.

    Args:
        blocks: those of the network.
        spectra: their spectra for τ = 1.
        sums: the sums over the data.
        scale: of each block's sums.
        precision: P, by index.
        squares: (w* − m)ᵀ P (w* − m), by index.
        each: one τ for each array rather than one for all.
    """
    leaves = [i for block in blocks for i in block.leaves]
    group = {i: n if each else 0 for n, i in enumerate(leaves)}
    count = len(leaves) if each else 1
    energy = jnp.zeros(count)
    for i in leaves:
        energy = energy.at[group[i]].add(squares[i])

    def determined(tau: jax.Array) -> jax.Array:
        gamma = jnp.zeros(count)
        for block in blocks:
            if not each or len(block.leaves) == 1:
                g, values = group[block.leaves[0]], spectra[block.name].values
                gamma = gamma.at[g].add(jnp.sum(values / (values + tau[g])))
                continue
            # arrays that share a block: γ of each is its part of the trace of (H + τP)⁻¹ H
            root = jax.lax.rsqrt(jnp.concatenate([precision[i].reshape(-1) for i in block.leaves]))
            matrix = scale[block.name] * root[:, None] * sums[block.name]["matrix"] * root
            owner = jnp.repeat(
                jnp.array([group[i] for i in block.leaves]),
                jnp.array(block.sizes),
                total_repeat_length=block.size,
            )
            inverse = jnp.linalg.inv(matrix + jnp.diag(tau[owner]))
            gamma = gamma.at[owner].add(jnp.sum(inverse * matrix, axis=1))
        return gamma

    def step(carry: PyTree) -> PyTree:
        log_tau, _, n = carry
        gamma = jnp.maximum(determined(jnp.exp(log_tau)), 1e-12)
        wanted = jnp.log(gamma) - jnp.log(jnp.maximum(energy, 1e-12))
        new = jnp.clip(0.5 * (log_tau + wanted), -WIDEST, WIDEST)
        return new, jnp.max(jnp.abs(new - log_tau)), n + 1

    start = (jnp.zeros(count), jnp.asarray(jnp.inf), 0)
    log_tau, _, _ = jax.lax.while_loop(lambda c: (c[1] > CLOSE) & (c[2] < ITERATIONS), step, start)
    return {i: jnp.exp(log_tau[group[i]]) for i in leaves}


@compiled
def solve(
    blocks: tuple[Block, ...],
    model: Model,
    params: Parameters,
    sums: Sums,
    mass: jax.Array,
    total: jax.Array,
    mode: str,
) -> tuple[dict[str, PyTree], dict[int, jax.Array], jax.Array, dict[int, jax.Array]]:
    """The Gaussian of the blocks; to be called under ``jax.enable_x64(True)``.

    Args:
        blocks: the blocks.
        model: the model.
        params: w*.
        sums: of the blocks over the examples so far.
        mass: the weight of those examples.
        total: that of all: what was summed stands for the rest.
        mode: the prior's precision: ``"fixed"``, ``"marginal_likelihood"`` or ``"per_array"``.

    Returns:
        The arrays of the posterior's blocks, in the network's precision; τ by index; the log
        evidence less log p(D | w*); and by index whether the prior has a precision at all.
    """
    dtype, sums = mass.dtype, with_rest(sums)
    params, mass, total = jax.tree.map(lambda a: a.astype(float), (params, mass, total))
    leaves, count = jax.tree.leaves(params), len(jax.tree.leaves(params.network))
    priors = jax.tree.leaves(model.priors, is_leaf=is_prior)
    known = {i: prior_precision(priors[i], leaves[i]) for b in blocks for i in b.leaves}
    precision = {i: p for i, (p, _) in known.items()}
    sound = {i: jnp.all((p > 0) & jnp.isfinite(p)) for i, p in precision.items()}
    squares = {i: jnp.sum(p * jnp.square(leaves[i] - m)) for i, (p, m) in known.items()}
    log_p = {i: jnp.sum(priors[i].log_prob(leaves[i])) for i in known}
    share = total / mass
    # one of two Kronecker factors is divided by N times the positions of an example
    rows = {b.name: b.site.rows for b in blocks if b.site is not None and b.kind == "kronecker"}
    scale = {b.name: share / (rows[b.name] * mass) if b.name in rows else share for b in blocks}

    def spectrum_of(b: Block) -> Spectrum:
        return spectrum(b, sums[b.name], scale[b.name], [precision[i] for i in b.leaves])

    spectra = {b.name: spectrum_of(b) for b in blocks}
    factors: dict[int, jax.Array] = {}
    if mode != "fixed":
        own, each = tuple(b for b in blocks if b.leaves[0] < count), mode == "per_array"
        factors = best_precision(own, spectra, sums, scale, precision, squares, each)
        for i, tau in factors.items():
            precision[i], squares[i] = tau * precision[i], tau * squares[i]
            log_norm = jnp.sum(jnp.log(precision[i])) - LOG_2PI * leaves[i].size
            log_p[i] = 0.5 * (log_norm - squares[i])
        for b in own:
            # several τ in one matrix turn its eigenvectors
            turned = each and len(b.leaves) > 1
            tau = factors[b.leaves[0]]
            spectra[b.name] = spectrum_of(b) if turned else spectra[b.name].strengthened(tau)
    logs = [jnp.sum(jnp.log(p)) for p in precision.values()]
    logs += [jnp.sum(jnp.log1p(s.values)) for s in spectra.values()]
    determinant = jnp.sum(jnp.stack(logs))
    size = sum(b.size for b in blocks)
    value = jnp.sum(jnp.stack([*log_p.values()])) + 0.5 * (size * LOG_2PI - determinant)
    arrays = {b.name: _arrays(b, spectra[b.name]) for b in blocks}
    arrays, factors = jax.tree.map(lambda a: a.astype(dtype), (arrays, factors))
    return arrays, factors, value, sound


def _arrays(block: Block, whitened: Spectrum) -> dict[str, jax.Array]:
    """A block of the posterior's covariance, as ``LaplaceGaussian`` holds it."""
    scales, bases, values = whitened
    deviation = jax.lax.rsqrt(1 + values)
    if block.kind == "diagonal":
        return {"deviation": scales[0] * deviation}
    names = ["scale", "basis"]
    if block.kind == "kronecker":
        names = ["input_scale", "output_scale", "inputs", "outputs"]
    return dict(zip(names, (*scales, *bases), strict=True)) | {"deviation": deviation}
