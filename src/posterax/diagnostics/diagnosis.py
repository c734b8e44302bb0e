"""Can these draws be trusted? R-hat, effective sample sizes, divergences, energy, and a verdict.

Weights of a network are not identifiable: hidden units can change places, and signs, without any
change in the function. Chains may so disagree about weights and agree about every prediction, and
it is by predictions that they are judged, wherever inputs are given.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from .._util.admit import admit_inputs
from .._util.checks import whole_number
from .._util.tree import named_leaves, plain, tree_size
from ..likelihoods import Categorical
from ..posteriors import Draws, Posterior, Record
from ..posteriors.draws import effective, pareto_smooth
from . import verdict as _verdict
from .chain_statistics import FEWEST, convergence, energy_fractions
from .fitted import judge

GOOD = 1.01  # R-hat, Vehtari et al. 2021
BLOCK_BYTES = 2**28  # of outputs of all draws at once


@dataclasses.dataclass(frozen=True)
class Space:
    """How well chains mix in one space: a value for each of the quantities ``names``.

    ``rhat``, ``bulk`` and ``tail`` (effective sample sizes) are NaN for those that never change;
    ``total`` counts all quantities of the space, of which these are an even choice.
    """

    names: list[str]
    total: int
    rhat: np.ndarray
    bulk: np.ndarray
    tail: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, names: list[str], total: int) -> "Space":
        """Of quantities (chain, draw, quantity) with names."""
        return cls(names, total, *convergence(values))

    @property
    def moving(self) -> np.ndarray:
        """Which quantities change at all."""
        return ~np.isnan(self.rhat)

    @property
    def worst(self) -> int | None:
        """The place of the largest R-hat, or ``None`` where nothing changes."""
        return int(np.nanargmax(self.rhat)) if self.moving.any() else None

    @property
    def ess(self) -> float:
        """The smallest effective sample size, of bulk and tail; 0 where nothing changes."""
        if not self.moving.any():
            return 0.0
        return float(min(np.nanmin(self.bulk), np.nanmin(self.tail)))

    def to_dict(self) -> dict[str, Any]:
        """The numbers of the table; ``None`` for what cannot be told."""
        measures: dict[str, Any] = {
            "rhat_max": (self.rhat, np.max), "rhat_median": (self.rhat, np.median),
            "ess_bulk_min": (self.bulk, np.min), "ess_bulk_median": (self.bulk, np.median),
            "ess_tail_min": (self.tail, np.min), "ess_tail_median": (self.tail, np.median),
            "rhat_above_1.01": (self.rhat > GOOD, np.mean),
        }  # fmt: skip
        moving, worst = self.moving, self.worst
        return {
            "quantities": len(self.names), "of": self.total, "still": int((~moving).sum()),
            "worst": None if worst is None else self.names[worst],
        } | {
            name: None if worst is None else float(reduce(values[moving]))
            for name, (values, reduce) in measures.items()
        }  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What ``posterior.diagnose`` returns; ``print`` it.

    ``predictions`` is ``None`` without inputs. Sampler statistics (``divergences``,
    ``acceptance``, ``energy``: E-BFMI by chain, ``depth_hits``: trajectories that ended at their
    largest length) are ``None`` for samplers without them. Weighted draws have ``ess`` and
    ``k_hat`` instead of all that, the latter NaN where the weights have no tail to speak of.
    Other posteriors have ``numbers`` by name, and no chains.
    """

    chains: int
    draws: int
    weights: Space | None = None
    predictions: Space | None = None
    frozen: tuple[int, ...] = ()  # chains that never moved
    divergences: int | None = None
    acceptance: float | None = None
    energy: np.ndarray | None = None
    depth_hits: int | None = None
    ess: float | None = None
    k_hat: float | None = None
    steps: int = 0  # of the fit, for what to try next
    method: str = ""  # its name, for the same
    heading: str = ""  # of posteriors without chains, as are the next two
    numbers: dict[str, float | None] = dataclasses.field(default_factory=dict)
    said: tuple[_verdict.Finding, ...] | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is wrong in a word each: "not converged", "collapsed", "prior against data", …"""
        serious = [finding.kind for finding in _verdict.findings(self) if finding.serious]
        return tuple(dict.fromkeys(serious))

    @property
    def ok(self) -> bool:
        """Whether the draws can be used as they are: by predictions where inputs were given."""
        return not any(finding.serious for finding in _verdict.findings(self))

    @property
    def verdict(self) -> str:
        """What the numbers mean and what to do, in one to four sentences."""
        return " ".join(finding.text for finding in _verdict.findings(self)[:4])

    @property
    def table(self) -> Any:
        """R-hat and effective sample sizes as a pandas ``DataFrame``, a row for each space."""
        import pandas as pd

        if self.said is not None:
            return pd.DataFrame({"value": pd.Series(self.numbers, dtype=float)})
        spaces = {"weights": self.weights, "predictions": self.predictions}
        if self.weights is None:
            return pd.DataFrame({"ess": [self.ess], "k_hat": [self.k_hat]}, index=["weighted"])
        return pd.DataFrame(
            {name: space.to_dict() for name, space in spaces.items() if space is not None}
        ).T.infer_objects()

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain numbers and strings."""
        result = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for name in ("weights", "predictions"):
            result[name] = None if result[name] is None else result[name].to_dict()
        result["energy"] = None if self.energy is None else self.energy.tolist()
        result["said"] = None if self.said is None else [f._asdict() for f in self.said]
        about = {"ok": self.ok, "kinds": list(self.kinds), "verdict": self.verdict}
        return result | {"frozen": list(self.frozen), **about}

    def __str__(self) -> str:
        return _verdict.page(self)

    __repr__ = __str__


def diagnose(
    posterior: Posterior, x: PyTree = None, *, data: Any = None, most: int = 500
) -> Diagnosis:
    """Judge any posterior: the function behind its method.

    Chains by their agreement, weighted draws by their weights, variational fits by their ELBO, and
    others by their training and by how they fit the data.

    Rank-normalised split R-hat, bulk and tail effective sample size: Vehtari, Gelman, Simpson,
    Carpenter and Bürkner, Rank-normalization, folding, and localization: an improved R̂ for
    assessing convergence of MCMC, Bayesian Analysis 2021.

    Args:
        posterior: of any method.
        x: inputs at which the predictions of the chains are compared.
        data: ``(x, y)`` of the fit, for posteriors without chains: what the record has of the end
            of the fit is computed anew.
        most: at most this many weights, and this many predictions, evenly spread over all.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.linspace(-1, 1, 16)[:, None].astype("float32")
        >>> model = px.Model(px.networks.MLP(1, 1, (), key=0), None, px.likelihoods.Gaussian(0.3))
        >>> posterior = px.fit(model, (x, x[:, 0]), px.NUTS(warmup=50), steps=500, key=0)
        >>> diagnosis = posterior.diagnose(x)
        >>> diagnosis.ok
        True
        >>> print(diagnosis)
        4 chains × 500 draws
        ...
        The chains agree on the predictions ...
    """
    most = whole_number("most", most)
    if isinstance(posterior, Draws) and posterior.chained:
        return _diagnose_chains(posterior, x, most)
    if isinstance(posterior, Draws) and posterior.log_weights is not None:
        raw = (posterior.stats or {}).get("log_weight", posterior.log_weights)
        k_hat = getattr(posterior, "khat", None)
        k_hat = pareto_smooth(np.asarray(raw))[1] if k_hat is None else k_hat
        return Diagnosis(*posterior.shape, ess=effective(posterior.log_weights), k_hat=float(k_hat))
    heading, numbers, said = judge(posterior, data)
    record = posterior.record or Record()
    steps = int(record.settings.get("steps") or 0)
    return Diagnosis(
        0, 0, steps=steps, method=record.method, heading=heading, numbers=numbers, said=said
    )


def of_draws(posterior: Posterior) -> bool:
    """Whether there are chains, or weighted draws, to judge."""
    weighted = isinstance(posterior, Draws) and posterior.log_weights is not None
    return weighted or (isinstance(posterior, Draws) and posterior.chained)


def warn_of(diagnosis: Diagnosis) -> str | None:
    """The serious findings in words, two at most, for a warning; ``None`` where there are none."""
    serious = [finding.text for finding in _verdict.findings(diagnosis) if finding.serious]
    return " ".join(serious[:2]) or None


def _diagnose_chains(posterior: Draws, x: PyTree, most: int) -> Diagnosis:
    chains, draws = posterior.shape
    least = FEWEST if chains > 1 else 2 * FEWEST
    if draws < least:
        raise ValueError(
            f"{draws} draws of {chains} chain{'s'[: chains > 1]} say nothing about mixing: take "
            f"{least} at least, and better some hundred (steps=)"
        )
    stats = posterior.stats or {}

    def of_stat(name: str, reduce: Callable[[np.ndarray], Any]) -> Any:
        return reduce(np.asarray(stats[name])) if name in stats else None

    leaves = [np.asarray(a).reshape(chains, draws, -1) for a in jax.tree.leaves(posterior.draws)]
    moved = np.any([np.any(a != a[:, :1], axis=(1, 2)) for a in leaves], axis=0)
    record = posterior.record or Record()
    return Diagnosis(
        chains,
        draws,
        weights=Space.of(*weight_values(posterior, most)),
        predictions=None if x is None else Space.of(*prediction_values(posterior, x, most)),
        frozen=tuple(np.flatnonzero(~moved).tolist()),
        divergences=of_stat("diverging", lambda a: int(a.sum())),
        acceptance=of_stat("acceptance_rate", lambda a: float(a.mean())),
        energy=of_stat("energy", energy_fractions),
        depth_hits=of_stat("reached_max_treedepth", lambda a: int(a.sum())),
        steps=int(record.settings.get("steps", draws)),
        method=record.method,
    )


def _spread_over(total: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, total - 1, min(total, most)).round().astype(int))


def weight_values(posterior: Draws, most: int) -> tuple[np.ndarray, list[str], int]:
    """Chosen weights as (chain, draw, weight), their names, and how many there are in all."""
    leaves = named_leaves(posterior.draws)
    total = tree_size(jax.tree.map(lambda a: a[0, 0], posterior.draws))
    chosen, columns, names, start = _spread_over(total, most), [], [], 0
    for name, leaf in leaves.items():
        size = int(np.prod(leaf.shape[2:]))
        here = chosen[(chosen >= start) & (chosen < start + size)] - start
        columns.append(plain(leaf).reshape(*leaf.shape[:2], -1)[..., here])
        names += [name + _place(i, leaf.shape[2:]) for i in here]
        start += size
    return np.concatenate(columns, axis=-1), names, total


def prediction_values(posterior: Draws, x: PyTree, most: int) -> tuple[np.ndarray, list[str], int]:
    """The network's outputs at chosen inputs as (chain, draw, output), with names.

    Of classes it is the logarithms of their probabilities, since a number that is added to all
    outputs changes nothing.
    """
    x = admit_inputs(x)
    n = len(jax.tree.leaves(x)[0])
    shape = posterior.model.output_shape(jax.tree.map(lambda a: a[:1], x))[1:]
    each, (chains, draws) = int(np.prod(shape)), posterior.shape
    rows = _spread_over(n, max(1, most // each))
    inside = _spread_over(each, most)
    block = max(1, BLOCK_BYTES // (4 * chains * draws * each))
    parts = []
    for start in range(0, len(rows), block):
        few = rows[start : start + block]
        outputs = posterior.predict(jax.tree.map(lambda a, few=few: a[few], x)).outputs()
        if isinstance(posterior.model.likelihood, Categorical):
            outputs = outputs - outputs.max(-1, keepdims=True)
            outputs = outputs - np.log(np.exp(outputs).sum(-1, keepdims=True))
        parts.append(outputs.reshape(chains, draws, len(few), each)[..., inside])
    values = np.concatenate(parts, axis=2).reshape(chains, draws, -1)
    shape = () if each == 1 else shape
    names = [f"f(x[{row}]){_place(i, shape)}" for row in rows for i in inside]
    return values, names, n * each


def _place(flat: int, shape: tuple[int, ...]) -> str:
    if not shape:
        return ""
    return "[" + ", ".join(str(int(i)) for i in np.unravel_index(flat, shape)) + "]"
