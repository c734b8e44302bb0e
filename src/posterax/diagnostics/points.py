"""Points, ensembles, particles, SWAG, dropout and Laplace: what tells whether they are any good."""

import math
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._util.tree import tree_size
from ..data import Data
from ..model import Parameters
from ..posteriors import (
    DropoutPosterior,
    LaplaceGaussian,
    LowRankGaussian,
    Point,
    Posterior,
    Record,
)
from ..program.compiled import compiled
from .course import SHORTEST, course_of
from .measures import few_rows, plain
from .verdict import Finding, bad

GRADIENTS = 2**27  # numbers of all rows' gradients together, row after row
PULL = 0.1  # share of a row's squared gradient that all rows have in common
WORSE = 0.1  # nats a row that a spread may cost beside its own centre
APART = 0.5  # nats a row that a member may be worse than the median
GAINS = 0.02  # nats a row that the longest of several fits may have gained
SAME = 1e-5  # nats a row: members that differ by less are one


def measure_points(posterior: Posterior, data: Data) -> dict[str, Any]:
    """What tells whether a posterior without an ELBO can be trusted, in plain numbers.

    ``pull`` is ‖mean gradient‖² / mean ‖gradient‖² of the log joint over rows, at a mode: 0 where
    it is stationary, 1/n by chance, 1 where all rows pull alike; ``nll`` that of the predictive
    and ``centre_nll`` that of its mean weights, in nats a row; ``member_nll`` one for each member,
    ``diversity`` by how much they are worse, on average, than their mixture; ``finite`` whether
    all parameters are.
    """
    x, y, weight = few_rows(data)
    found: dict[str, Any] = {"finite": _finite(posterior)}
    if not found["finite"]:
        return found
    share, total = weight / weight.sum(), float(np.sum(np.asarray(data.weight, np.float64)))
    predictive = posterior.predict(x)
    each = predictive.log_likelihoods(y).astype(np.float64)  # (draws, rows)
    mixed = np.logaddexp.reduce(each + np.log(np.asarray(predictive.weights))[:, None], 0)
    found["nll"] = -float(mixed @ share)
    if isinstance(posterior, Point):
        found["pull"] = pull(posterior.bare(), posterior.point, x, y, weight, total)
    elif posterior.members > 1:
        found["member_nll"] = [-float(v) for v in each @ share]
        found["diversity"] = -float((each @ share).mean()) - found["nll"]
    elif isinstance(posterior, LaplaceGaussian | LowRankGaussian | DropoutPosterior):
        centre, _ = posterior.moments()
        point = Point(posterior.model, posterior.state, posterior.targets, point=centre)
        found["centre_nll"] = -float(point.predict(x).log_prob(y).astype(np.float64) @ share)
        if isinstance(posterior, LaplaceGaussian):
            found["pull"] = pull(point, centre, x, y, weight, total)
    return plain(found)


def _finite(posterior: Posterior) -> bool:
    arrays = jax.tree.leaves(eqx.filter(posterior.bare(), eqx.is_inexact_array))
    return all(bool(np.isfinite(np.asarray(a)).all()) for a in arrays)


def pull(point: Point, w: Parameters, x: PyTree, y: Any, weight: np.ndarray, total: float) -> float:
    """‖ḡ‖² / mean ‖g‖² of the rows' gradients of the log joint, each with its part of the prior."""
    rows = max(16, min(len(y), GRADIENTS // max(tree_size(w), 1)))
    few = slice(0, None, -(-len(y) // rows))
    x, y, weight = jax.tree.map(lambda a: np.asarray(a)[few], (x, y, weight))
    mean, squares = _gradients(point, w, x, y, jnp.asarray(weight, jnp.float32), total)
    return float(mean) / max(float(squares), 1e-30)


@compiled
def _gradients(
    point: Point, w: Parameters, x: PyTree, y: jax.Array, weight: jax.Array, total: float
) -> tuple[jax.Array, jax.Array]:
    model, n = point.model, jnp.sum(weight > 0)
    from_prior = jax.tree.map(lambda g: g / total, jax.grad(model.log_prior)(w))

    def one(sums: Any, row: Any) -> tuple[Any, None]:
        x, y, weight = row

        def log_likelihood(w: Parameters) -> jax.Array:
            inputs = jax.tree.map(lambda a: a[None], x)
            outputs, _ = model.apply(w, point.state, inputs, None, training=False)
            return model.likelihood_of(w, outputs, inputs, y[None])[0]

        own = jax.tree.map(lambda g, p: weight * (g + p), jax.grad(log_likelihood)(w), from_prior)
        square = jax.tree.reduce(jnp.add, jax.tree.map(lambda g: jnp.sum(jnp.square(g)), own))
        mean, squares = sums
        return (jax.tree.map(lambda m, g: m + g / n, mean, own), squares + square / n), None

    start = jax.tree.map(jnp.zeros_like, w), jnp.zeros(())
    (mean, squares), _ = jax.lax.scan(one, start, (x, y, weight))
    common = [jnp.sum(jnp.square(g)) for g in jax.tree.leaves(mean)]
    return jnp.sum(jnp.stack(common)), squares


# -- in words


def points_findings(posterior: Posterior, record: Record, seen: dict[str, Any]) -> list[Finding]:
    """Everything worth saying, what is wrong first."""
    if seen.get("finite") is False:
        return [
            bad(
                "Some of its numbers are not finite, so it predicts nothing: lower the learning "
                "rate, and standardise x and y.",
                kind="not converged",
            )
        ]
    chosen = _has_length(record)  # by held-out rows, not by the course
    course = _length(record) if chosen else _course(record)
    said = [*course, *_mode(seen, chosen), *_members(posterior, record, seen), *_spread(seen)]
    if not seen:
        said.append(
            Finding(
                "Its predictions were not looked at: posterior.diagnose(data=(x, y)) measures "
                "them on the data of the fit."
            )
        )
    return sorted(said, key=lambda finding: not finding.serious)


def _course(record: Record) -> Iterator[Finding]:
    course = course_of(record)
    if course is None:
        if record.method and not record.settings.get("steps"):
            yield Finding("The record has no training to judge.")
        return
    ended, steps = course.rest(), len(course.nll)
    longer = "Train longer (steps=, epochs=)"
    if ended.state == "short":
        yield bad(
            f"{steps} steps are too few to tell whether the training has converged: take "
            f"{SHORTEST} at least, and better some thousand.",
            kind="not converged",
        )
    elif ended.state == "level":
        yield Finding("The training was level at its end, in nats a row.")
    else:
        advice = longer if ended.state == "falling" else "Lower the learning rate"
        yield bad(
            f"The training was {ended.words} nats a row of the {steps:,} steps. {advice}.",
            kind="not converged",
        )


def _has_length(record: Record) -> bool:
    """Whether a fit has the length that held-out rows chose; a callback may have ended it."""
    length, taken = record.settings.get("length"), len(record.terms.get("nll", ()))
    several = any("/" in name for name in record.terms)  # phases, of which the last is counted
    return length is not None and not record.interrupted and (several or taken == length)


def _length(record: Record) -> Iterator[Finding]:
    """How the length of a fit came out on the rows that chose it."""
    tried, steps = record.settings["lengths"], record.settings["length"]
    tried = [(taken, math.inf if nll is None else nll) for taken, nll in tried]
    nll = dict(tried)[steps]
    constant = record.settings.get("held_out_constant")
    if constant is not None and nll > constant:
        yield bad(
            f"Held-out rows are less probable ({-nll:.2f} nats a row) than under a constant "
            f"prediction ({-constant:.2f}), whatever the length of the fit: it follows the noise. "
            "Take a method that averages over weights (px.BayesByBackprop()), or a narrower prior.",
            kind="poor approximation",
        )
    elif len(tried) > 1 and steps == tried[-1][0] and tried[-2][1] - nll > GAINS:
        yield bad(
            f"Held-out rows gained {tried[-2][1] - nll:.2f} nats a row from the last doubling of "
            f"the steps, to {steps:,}: give steps={2 * steps} or more.",
            kind="not converged",
        )
    else:
        yield Finding(f"Held-out rows chose the length: {steps:,} steps, {-nll:.2f} nats a row.")


def _mode(seen: dict[str, Any], chosen: bool) -> Iterator[Finding]:
    value = seen.get("pull")
    if value is None:
        return
    if value > PULL and chosen:
        yield Finding(
            f"This is no mode ({value:.0%} of the rows' squared gradients is common to all): "
            "held-out rows ended the fit before it came to one."
        )
    elif value > PULL:
        yield bad(
            f"This is no mode: the gradients of the rows pull in one direction ({value:.0%} of "
            "their square is common to all), which noise does not explain. Train longer, or raise "
            "the learning rate.",
            kind="not converged",
        )
    else:
        yield Finding(f"The gradients of the rows cancel ({value:.1%} of their square is left).")


def _members(posterior: Posterior, record: Record, seen: dict[str, Any]) -> Iterator[Finding]:
    each = np.array([math.inf if v is None else v for v in seen.get("member_nll", [])])
    if len(each) < 2:
        return
    word = "particle" if record.method == "SVGD" else "member"
    middle = float(np.median(each))
    poor = np.flatnonzero(each > middle + APART).tolist()
    if poor:
        yield bad(
            f"{len(poor)} of {len(each)} {word}s ({', '.join(map(str, poor))}, from 0) fit the "
            f"data much worse than the others ({each.max():.2f} nats a row, the median "
            f"{middle:.2f}): train longer, or with a lower learning rate.",
            kind="not converged",
        )
    diversity = seen.get("diversity") or 0.0
    if diversity < SAME:
        yield bad(
            f"All {len(each)} {word}s predict the same: they say nothing about uncertainty. Start "
            "them apart (no init=), or use more of them.",
            kind="collapsed",
        )
    elif not poor:
        yield Finding(
            f"The {word}s fit the data alike ({each.min():.2f} to {each.max():.2f} nats a row) "
            f"and differ by {diversity:.2g} nats a row in what they predict."
        )


def _spread(seen: dict[str, Any]) -> Iterator[Finding]:
    """A Gaussian around weights that predicts worse than the weights themselves."""
    centre, nll = seen.get("centre_nll"), seen.get("nll")
    if centre is None:
        return
    if nll is None or nll > centre + WORSE:
        found = "no finite density" if nll is None else f"an NLL of {nll:.2f} nats a row"
        yield bad(
            f"Its draws fit the training rows worse than its mean weights do: {found}, the mean "
            f"{centre:.2f}. The Gaussian is wider than the mode: tune the prior, lower the rate "
            "of SWAG, or fit with px.BayesByBackprop.",
            kind="poor approximation",
        )
    else:
        yield Finding(f"Its draws fit as well as its mean weights ({nll:.2f} and {centre:.2f}).")
