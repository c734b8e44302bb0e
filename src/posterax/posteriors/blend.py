"""Unlike models side by side, each with the weight that stacking gave it."""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from ..model import Parameters
from ..networks.base import Footprint
from ..predictive import Particles
from ..program.compiled import compiled
from .base import Posterior
from .draws import Draws
from .record import Record

MARGIN = 0.05  # of a column's range: so far beyond it all draws are those of the plain part


class Blend(Posterior):
    r"""p(y | x, D) = Σ_c v_c p_c(y | x, D): models of one likelihood, weighted by stacking.

    The parts may differ in network, prior and method. Inputs are the columns that all parts see;
    after them come ``own`` columns for each of the ``folds``: what other models, boosted trees say,
    that did not see this fold answer. The networks of a ``based`` part that left out the same fold
    take them as their last inputs.

    Trees are constant beyond the data, and waves come again. So beyond the ``reach`` of the
    columns, the farther the more, draws of other parts give way to those of the ``plain`` one.

    Args:
        parts: posteriors with one likelihood and targets of one shape.
        weights: of the parts; they sum to 1.
        widths: the noise of each part is so many times as wide as its network says.
        based: which parts take columns of their own.
        own: how many.
        folds: of the rows, of which each network left out one.
        plain: the part to be asked beyond the data; ``None``: each goes on as it does.
        reach: the least and the most that each column had, (2, columns).

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> from posterax.posteriors import Blend
        >>> x, y = curve_data(32)
        >>> ensemble = px.DeepEnsemble(2)
        >>> one, two = (px.fit(curve_model(), (x, y), ensemble, steps=5, key=k) for k in (0, 1))
        >>> both = Blend.of([one, two], [0.25, 0.75]).predict(x)
        >>> parts = 0.25 * one.predict(x).mean + 0.75 * two.predict(x).mean
        >>> bool(np.allclose(both.mean, parts, atol=1e-5))
        True

    Reference: Yao, Vehtari, Simpson and Gelman, *Using stacking to average Bayesian predictive
    distributions*, Bayesian Analysis 2018.
    """

    parts: tuple[Posterior, ...]
    weights: Any
    widths: Any
    based: tuple[bool, ...] = eqx.field(static=True, default=())
    own: int = eqx.field(static=True, default=0)
    folds: int = eqx.field(static=True, default=1)
    plain: int | None = eqx.field(static=True, default=None)
    reach: Any = None

    divisible: ClassVar[bool] = False  # its particles differ in kind: they are taken all at once

    @classmethod
    def of(
        cls, parts: Any, weights: ArrayLike, *, widths: ArrayLike | None = None,
        based: Any = None, own: int = 0, folds: int = 1, plain: int | None = None,
        reach: Any = None, record: Record | None = None,
    ) -> "Blend":  # fmt: skip
        """The blend of these posteriors."""
        first, based = parts[0], tuple(based or (False,) * len(parts))
        widths = np.ones(len(parts)) if widths is None else widths
        weights, widths = (jnp.asarray(a, jnp.float32) for a in (weights, widths))
        bare = tuple(part.bare() for part in parts)
        reach = None if plain is None else jnp.asarray(reach, jnp.float32)
        return cls(
            first.model, first.state, first.targets, bare, weights, widths, based, own, folds,
            plain, reach, record=record,
        )  # fmt: skip

    def fold(self, index: Any, folds: int) -> "Blend":
        """The networks of every part that left out this fold, as a blend with one fold."""
        parts = tuple(part.fold(index, folds) for part in self.parts)
        return eqx.tree_at(lambda b: b.parts, self, parts)._with_folds(1)

    def tempered(self, temperature: float) -> "Blend":
        """The noise of every part so many times as wide; of classes p^(1/T) / Σ p^(1/T)."""
        return eqx.tree_at(lambda b: b.widths, self, self.widths * jnp.float32(temperature))

    def _with_folds(self, folds: int) -> "Blend":
        numbers = self.weights, self.widths, self.based, self.own
        reach = self.plain, self.reach
        return Blend(self.model, self.state, self.targets, self.parts, *numbers, folds, *reach)

    def _sizes(self) -> dict[str, int]:
        return {"parts": len(self.parts), "folds": self.folds}

    def particles(self, key: jax.Array, samples: int | None) -> Particles:
        shares = np.asarray(self.weights, np.float64)
        counts = tuple(max(2 * self.folds, round((samples or 100) * share)) for share in shares)
        return _particles(self.bare(), key, counts)

    antithetic = particles

    def _apart(self, part: Posterior) -> list[Posterior]:
        """The networks of each fold."""
        if self.folds == 1:
            return [part]
        return [part.fold(k, self.folds) for k in range(self.folds)]

    def evaluate(self, ids: PyTree, x: PyTree) -> tuple[jax.Array, Any]:
        each = [self._evaluate(i, part_ids, x) for i, part_ids in enumerate(ids)]
        outputs, params = zip(*each, strict=True)
        if self.plain is not None:
            outputs = self._beyond(outputs, self.plain, x[..., : self._shared(x)])
        return jnp.concatenate(outputs), jax.tree.map(lambda *a: jnp.concatenate(a), *params)

    def _beyond(
        self, outputs: tuple[jax.Array, ...], number: int, x: jax.Array
    ) -> tuple[jax.Array, ...]:
        """Outputs of each part, with those of the plain one in place of others beyond the data."""
        low, high = self.reach
        across = jnp.where(high > low, high - low, 1)
        far = jnp.max(jnp.maximum(x - high, low - x) / across, axis=-1) / MARGIN
        plain = outputs[number]

        def one(own: jax.Array) -> jax.Array:
            draws = jnp.arange(len(own))
            gone = far > (draws[:, None] + 1) / len(own)
            gone = gone.reshape(gone.shape + (1,) * (own.ndim - 2))
            return jnp.where(gone, plain[draws % len(plain)], own)

        return tuple(own if i == number else one(own) for i, own in enumerate(outputs))

    def _evaluate(self, number: int, ids: PyTree, x: jax.Array) -> tuple[jax.Array, Any]:
        """Outputs of one part, and its likelihood's parameters, by sample."""
        part, shared = self.parts[number], self._shared(x)
        if not self.based[number]:
            outputs, params = part.evaluate(ids, x[..., :shared])
        elif self.folds == 1:
            outputs, params = part.evaluate(ids, x)
        else:  # (rows, folds · own) as (folds, rows, own)
            own = jnp.moveaxis(x[..., shared:].reshape(len(x), self.folds, self.own), 1, 0)

            def one(index: jax.Array, ids: PyTree, own: jax.Array) -> Any:
                inputs = jnp.concatenate([x[..., :shared], own], -1)
                return part.fold(index, self.folds).evaluate(ids, inputs)

            apart = jax.vmap(one)(jnp.arange(self.folds), ids, own)
            outputs, params = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), apart)
        return self.model.likelihood.widened(outputs, self.widths[number]), params

    def _shared(self, x: Any) -> int:
        """How many of the columns all parts see."""
        return x.shape[-1] - (self.own * self.folds if any(self.based) else 0)

    def _inputs(self, number: int, x: Any) -> Any:
        """The shape of what a network of this part takes."""
        columns = self._shared(x) + self.based[number] * self.own
        return jax.ShapeDtypeStruct((*x.shape[:-1], columns), x.dtype)

    def output_shape(self, x: PyTree) -> tuple[int, ...]:
        return self.parts[0].model.output_shape(self._inputs(0, x))

    def footprint(self, x: PyTree) -> Footprint:
        found = [part.footprint(self._inputs(i, x)) for i, part in enumerate(self.parts)]
        return found[0]._replace(widest=max(f.widest for f in found))

    def moments(self) -> tuple[Parameters, Parameters]:
        raise ValueError(self._unlike("moments"))

    def parameters(self, identity: PyTree) -> Parameters:
        raise ValueError(self._unlike("parameters"))

    def _unlike(self, name: str) -> str:
        return (
            f"{name}: the {len(self.parts)} models of a blend have no weights in common; "
            "blend.parts has the posterior of each"
        )


@compiled  # apart, the draws of each part and fold would be programs of their own
def _particles(blend: Blend, key: jax.Array, counts: tuple[int, ...]) -> Particles:
    """Identities of so many draws of each part, those of one fold together where it is based."""
    ids, weights = [], []
    keys = jax.random.split(key, len(blend.parts))
    for number, (part, k) in enumerate(zip(blend.parts, keys, strict=True)):
        apart = blend._apart(part) if blend.based[number] else [part]
        each = [_ask(p, k, i, counts[number] // len(apart)) for i, p in enumerate(apart)]
        one, weight = jax.tree.map(lambda *a: jnp.stack(a), *each)
        ids.append(one if len(apart) > 1 else jax.tree.map(lambda a: a[0], one))
        weights.append(blend.weights[number] * weight.reshape(-1) / len(apart))
    return Particles(tuple(ids), jnp.concatenate(weights))


def _ask(part: Posterior, key: jax.Array, number: int, samples: int) -> Particles:
    """Networks that were trained apart are all asked; of a distribution so many samples."""
    apart = isinstance(part, Draws) and not part.chained
    return part.antithetic(jax.random.fold_in(key, number), None if apart else max(1, samples))
