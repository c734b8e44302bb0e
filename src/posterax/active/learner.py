r"""A model that says which labels it wants, and learns from them."""

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree
from numpy.typing import ArrayLike

from .._util.admit import admit_inputs, check_finite
from .._util.checks import one_of, whole_number
from .._util.interrupts import raise_on_interrupt
from .._util.keys import KeyLike, as_key
from .._util.tree import same_structure
from ..data import Padded, bucket, unpack
from ..errors import CheckpointError
from ..files.bounds import field
from ..files.container import read, refusing
from ..files.saved import load, rebuild, save
from ..fitting.fit import fit
from ..fitting.prepare import DEFAULT_BATCH, SHARED_ROWS
from ..infer.base import Method
from ..model import Model, Parameters
from ..posteriors import Posterior
from ..priors import PerWeight
from .scores import By, check_by, generator, left_of, pick

OWN = ("data", "init", "resume", "key", "checkpoint", "progress")  # arguments of fit it sets

FILE = "learner.safetensors"


class Learner:
    r"""A model with its labels so far, for one question after another.

    ``query`` says which inputs of a pool to ask about, ``teach`` takes their labels and fits again:

        update="refit"                p(w | D₁, D₂) ∝ p(w) p(D₁ | w) p(D₂ | w), from all labels
        update="posterior_as_prior"   p(w | D₁, D₂) ∝ p(w | D₁) p(D₂ | w), from the new labels alone

    The two are the same for exact posteriors. The second never looks at old data again, but what
    becomes the prior is ``posterior.as_prior()``, independent Gaussians with the moments of the
    last posterior: exact where that is what the posterior is, an approximation that adds up over
    rounds elsewhere; and a method that leaves weights without spread (``px.MCDropout``) has none.

    A refit starts from the network's own weights each time. With ``init="last"`` it starts from the
    last posterior, which saves steps; it often generalises worse than a fresh start even where the
    training loss is the same (Ash and Adams, *On warm-starting neural network training*, NeurIPS
    2020), so try both before you rely on it.

    The labelled data has room to grow, so that most rounds compile nothing.

    Args:
        model: network + prior + likelihood.
        method: how to fit it; anything that gives a posterior.
        x: inputs whose labels are known.
        y: their labels.
        by: how to choose, as in ``px.active.pick``.
        init: ``"fresh"`` or ``"last"`` (default: the last posterior where it is the prior, if the
            method takes a start).
        update: ``"refit"`` or ``"posterior_as_prior"``.
        samples: posterior samples behind the scores (default: the posterior's own number).
        room: labels to make room for from the start; all fits up to there share one program.
        key: an int or a JAX key.
        posterior: that of these labels, where there is one already (default: it is fitted).
        progress: show the bar of the first fit (default: where someone is watching).
        options: of ``px.fit``: ``epochs``, ``steps``, ``batch_size``, ``augment``, ….

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> pool = np.linspace(-1, 1, 21)[:, None].astype("float32")
        >>> line = px.networks.MLP(1, 1, (), key=0)
        >>> model = px.Model(line, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
        >>> learner = px.active.Learner(model, px.Conjugate(), pool[[10]], np.zeros(1))
        >>> ask = learner.query(pool, 1)  # a line is known best from its ends
        >>> bool(ask[0] in (0, 20))
        True
        >>> posterior = learner.teach(pool[ask], 3 * pool[ask, 0])
        >>> learner
        Learner(Conjugate, by bald, 2 labels)
    """

    def __init__(
        self,
        model: Model,
        method: Method,
        x: PyTree,
        y: ArrayLike,
        *,
        by: By = "bald",
        init: str | None = None,
        update: str = "refit",
        samples: int | None = None,
        room: int = 1,
        key: KeyLike = 0,
        posterior: Posterior | None = None,
        progress: bool | None = None,
        **options: Any,
    ):
        check_by(by)
        one_of("update", update, ("refit", "posterior_as_prior"))
        if init is None:
            chained = update == "posterior_as_prior" and method.needs.no_start is None
            init = "last" if chained else "fresh"
        one_of("init", init, ("fresh", "last"))
        for name in set(options) & set(OWN):
            raise TypeError(f"{name}: the learner sets it itself; leave it out")
        self.model, self.method, self.by, self.init, self.update = model, method, by, init, update
        self.samples = None if samples is None else whole_number("samples", samples)
        self.room, self.key, self.options = whole_number("room", room), as_key(key), options
        self.rounds = 0
        self.x, self.y = self._checked(x, y)
        if posterior is None:
            posterior = self._fit(self.x, self.y, self.rounds, progress)
        self.posterior = posterior

    def __repr__(self) -> str:
        by = self.by if isinstance(self.by, str) else getattr(self.by, "__name__", "a function")
        return f"Learner({type(self.method).__name__}, by {by}, {len(self)} labels)"

    def __len__(self) -> int:
        return len(self.y)

    def query(
        self, pool: PyTree, n: int, *, exclude: ArrayLike = (), candidates: int | None = None
    ) -> np.ndarray:
        """The numbers of ``n`` inputs of a pool to ask about, the best first.

        Args:
            pool: inputs without labels.
            n: how many.
            exclude: inputs of the pool that must not be chosen: their numbers, or an array of
                booleans, true for them.
            candidates: score so many inputs of the pool, drawn anew each time (default: all).
        """
        pool = admit_inputs(pool)
        size = len(jax.tree.leaves(pool)[0])
        key = jax.random.fold_in(self.key, 2 * self.rounds + 1)
        few = np.arange(size)
        if candidates is not None:
            left, exclude = left_of(size, exclude), ()
            rows = min(max(whole_number("candidates", candidates), n), len(left))
            few = generator(jax.random.fold_in(key, 1)).choice(left, rows, replace=False)
            pool = jax.tree.map(lambda a: np.asarray(a)[few], pool)
        if self.by == "random":  # no need to predict
            return few[pick(np.zeros(len(few)), n, exclude=exclude, key=key)]
        predictive = self.posterior.predict(pool, samples=self.samples, key=key)
        return few[pick(predictive, n, by=self.by, exclude=exclude, key=key)]

    def teach(self, x: PyTree, y: ArrayLike, *, progress: bool | None = None) -> Posterior:
        """Add labels and fit; either both happen or, where an error is raised, neither.

        One Ctrl-C ends a refit early: the labels are there, and the posterior is what the fit had
        reached (``posterior.record.interrupted``). A second one raises, and nothing is changed. So
        does the first with ``update="posterior_as_prior"``, where half a fit would be the prior of
        all that follow.

        Args:
            x: inputs.
            y: their labels.
            progress: show the bar of the fit (default: where someone is watching).
        """
        new = self._checked(x, y)
        if not same_structure(new[0], self.x):
            raise ValueError("x must have the same structure as the inputs before")
        for name, *both in zip("xy", (self.x, self.y), new, strict=True):
            before, now = ([a.shape[1:] for a in jax.tree.leaves(tree)] for tree in both)
            if before != now:
                raise ValueError(f"{name} must be like those before: {before} a row, got {now}")
        every = jax.tree.map(lambda a, b: np.concatenate([a, b]), (self.x, self.y), new)
        x, labels = every if self.update == "refit" else new
        posterior = self._fit(x, labels, self.rounds + 1, progress)
        (self.x, self.y), self.posterior = every, posterior
        self.rounds += 1
        return posterior

    def _checked(self, x: PyTree, y: ArrayLike) -> tuple[PyTree, np.ndarray]:
        x, y, _ = unpack((x, y))
        check_finite("x", x)
        check_finite("y", y)
        self.model.check(x, y)
        return jax.tree.map(np.asarray, (x, y))

    def _fit(self, x: PyTree, y: np.ndarray, rounds: int, progress: bool | None) -> Posterior:
        model, last = self.model, getattr(self, "posterior", None)
        chained = self.update == "posterior_as_prior"
        if chained and last is not None:
            model = with_prior(model, last.as_prior())
        data = Padded((x, y), self._room(len(y)))
        with raise_on_interrupt() if chained else nullcontext():
            return fit(
                model, data, self.method, init=last if self.init == "last" else None,
                key=jax.random.fold_in(self.key, 2 * rounds), progress=progress, **self.options,
            )  # fmt: skip

    def _room(self, n: int) -> int:
        """Rows of the arrays: a power of two, and no fewer than a minibatch has."""
        if n > SHARED_ROWS:
            return bucket(n)
        power = 1 << (n - 1).bit_length()
        if self.method.needs.all_data:  # all rows cost in each step
            return power
        batch = self.options.get("batch_size") or DEFAULT_BATCH
        wanted = n if self.update == "posterior_as_prior" else self.room
        return max(power, wanted, 2 * batch)

    def save(self, directory: str | Path) -> None:
        """Write the posterior and the labels into a directory, as one file; see ``Learner.load``.

        One file, so that no crash can leave the labels of one round beside the posterior of
        another.
        """
        x = self.x if isinstance(self.x, Mapping) else {"": self.x}
        if not all(isinstance(a, np.ndarray) for a in x.values()):
            raise TypeError("x: only arrays, and dicts of arrays, are saved")
        arrays = {f"learner/x/{name}": a for name, a in x.items()} | {"learner/y": self.y}
        save(self.posterior, Path(directory) / FILE, {"learner": {"rounds": self.rounds}}, arrays)

    @classmethod
    def load(cls, directory: str | Path, model: Model, method: Method, **options: Any) -> "Learner":
        """The learner that was saved; model, method and options are to be given again."""
        path = Path(directory)
        old = not (path / FILE).exists() and (path / "labels.npz").exists()
        posterior, arrays = _read_pair(path, model) if old else _read(path / FILE, model)
        with refusing(path / ("labels.npz" if old else FILE)):
            named = {name[2:]: a for name, a in arrays.items() if name.startswith("x/")}
            x, y, _ = unpack((named.get("", named), arrays["y"]))
            check_finite("x", x)
            check_finite("y", y)
            model.check(x, y)
        learner = cls(model, method, x, y, posterior=posterior, **options)
        learner.rounds = int(arrays["rounds"])
        return learner


def _read(path: Path, model: Model) -> tuple[Posterior, dict[str, np.ndarray]]:
    """Posterior and labels of one file."""
    arrays, header = read(path)
    with refusing(path):
        posterior = rebuild(arrays, header, model)
        rounds = field(field(header, "learner", dict), "rounds", int)
        start = "learner/"
        own = {name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)}
        if "y" not in own:
            raise CheckpointError("holds no labels")
        return posterior, own | {"rounds": np.asarray(rounds)}


def _read_pair(path: Path, model: Model) -> tuple[Posterior, dict[str, np.ndarray]]:
    """Posterior and labels of two files, as posterax 0.1.0 wrote them."""
    labels = path / "labels.npz"
    with refusing(labels), np.load(labels, allow_pickle=False) as stored:
        arrays = {"rounds": stored["rounds"], "y": stored["y"], **stored}
    return load(path / "posterior.safetensors", model=model), arrays


def with_prior(model: Model, prior: PerWeight) -> Model:
    """The same model before other data: with another prior."""
    priors = Parameters(prior.resolve(model.network.params, model.network.fan_in), {})
    is_none = lambda node: node is None  # noqa: E731
    return eqx.tree_at(lambda m: (m.prior, m.priors), model, (prior, priors), is_leaf=is_none)
