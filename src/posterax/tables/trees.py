r"""Boosted trees, cross-fitted: what they say of a row comes from trees that never saw it.

For K folds there are K forests, each learned from all rows but those of one fold. A training row is
answered by the forest that left it out, a new row by all K, whose differences are a part of what is
not known (bagging, Breiman 1996). There are as many trees as it takes to predict the left-out rows
nearly as well as any number does. scikit-learn grows them; kept are plain arrays, which can be
checked.

Reference: Friedman, *Greedy function approximation: a gradient boosting machine*, Annals of
Statistics 2001; Wolpert, *Stacked generalization*, Neural Networks 1992.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from threadpoolctl import threadpool_limits

from .._util.machine import xla_threads
from ..errors import CheckpointError
from ..files.container import Arrays

EXACT_ROWS = 4000  # up to so many rows every threshold is tried; beyond, those of 255 bins
EXACT_CELLS = 200_000  # and up to so many cells of the table
FIELDS = {
    "value": np.float64, "feature": np.int32, "threshold": np.float64,
    "left": np.int32, "right": np.int32,
}  # fmt: skip
MOST_NODES = 1 << 24
BLOCK = 4096  # rows that one thread takes through a forest, so that they stay in its cache
NO_BITS, NO_COLUMNS = np.empty((0, 8), np.uint32), np.empty(0, np.uint32)  # no categories
NEARLY = 1.005  # times the least loss: the last third of the trees takes off no more than this


class Growth(NamedTuple):
    """How trees are grown."""

    trees: int = 500
    depth: int = 5
    rate: float = 0.05
    columns: float = 0.5
    rows: float = 0.6


class Forest(NamedTuple):
    """Σ_t tree_t(x), for each output, from a constant on."""

    nodes: np.ndarray
    starts: np.ndarray  # (trees + 1,): where the nodes of each tree begin
    output: np.ndarray  # (trees,): which output each adds to
    constant: np.ndarray  # (outputs,)

    @property
    def rounds(self) -> int:
        """Trees of each output."""
        return len(self.output) // len(self.constant)

    def steps(self, x: np.ndarray) -> np.ndarray:
        """What each tree says of each row, (trees, rows)."""
        return np.stack([self._tree(t, x) for t in range(len(self.output))])

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """(rows, outputs)."""
        total = np.tile(self.constant, (len(x), 1))
        for t, output in enumerate(self.output):
            total[:, output] += self._tree(t, x)
        return total

    def _tree(self, t: int, x: np.ndarray) -> np.ndarray:
        nodes = self.nodes[self.starts[t] : self.starts[t + 1]]
        tree = TreePredictor(nodes, NO_BITS, NO_BITS)
        # one thread: several would wait for one another after every tree
        return tree.predict(x, NO_BITS, NO_COLUMNS, 1)

    def first(self, rounds: int) -> "Forest":
        """The forest as it was after so many rounds."""
        kept = rounds * len(self.constant)
        nodes = self.nodes[: self.starts[kept]]
        return Forest(nodes, self.starts[: kept + 1], self.output[:kept], self.constant)


class Forests(NamedTuple):
    """One forest for each fold, which it did not see."""

    each: tuple[Forest, ...]
    classes: bool

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """What each forest says, (rows, forests · outputs), outputs of a forest together."""
        x = _as_trees_see(x)
        blocks = [x[i : i + BLOCK] for i in range(0, max(len(x), 1), BLOCK)]
        said = side_by_side(lambda job: job[0](job[1]), list(product(self.each, blocks)))
        count = len(blocks)
        each = [np.concatenate(said[i : i + count]) for i in range(0, len(said), count)]
        return np.concatenate([self._outputs(raw) for raw in each], axis=1)

    def out_of_fold(self, x: np.ndarray, fold: np.ndarray) -> np.ndarray:
        """Of each row what the forest says that did not see it, (rows, outputs)."""
        x, own = _as_trees_see(x), [fold == k for k in range(len(self.each))]
        jobs = list(zip(self.each, own, strict=True))
        said = side_by_side(lambda job: self._outputs(job[0](x[job[1]])), jobs)
        got = np.empty((len(x), said[0].shape[1]))
        for rows, part in zip(own, said, strict=True):
            got[rows] = part
        return got

    def _outputs(self, raw: np.ndarray) -> np.ndarray:
        """Two classes have one raw score, log p₁ / p₀: half of it for and half against."""
        if self.classes and raw.shape[1] == 1:
            raw = np.concatenate([-raw / 2, raw / 2], axis=1)
        if self.classes:
            raw = raw - raw.mean(axis=1, keepdims=True)
        return raw


def grow(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray, fold: np.ndarray,
    *, classes: int = 0, seed: int, options: tuple[Growth, ...] = (Growth(),),
) -> tuple[Forests, float]:  # fmt: skip
    """Cross-fitted forests, and their mean loss of the rows that each left out.

    Args:
        x: inputs.
        y: one target, or labels 0 … classes − 1.
        weight: how often each row counts.
        fold: the number of each row's fold, from 0.
        classes: how many there are; 0 in regression.
        seed: of the trees.
        options: how trees may be grown; the one with the least loss is taken.

    Example:
        >>> import numpy as np
        >>> from posterax.tables.trees import Growth, grow
        >>> x = np.random.default_rng(0).normal(size=(200, 2))
        >>> fold = np.arange(200) % 4
        >>> y = np.where(x[:, 0] > 0, 1.0, -1.0)
        >>> forests, loss = grow(x, y, np.ones(200), fold, seed=0, options=(Growth(50, 2),))
        >>> loss < 0.1, forests(x[:3]).shape
        (True, (3, 4))
    """
    x = _as_trees_see(x)
    best: tuple[float, tuple[Forest, ...]] | None = None
    for growth in options:
        each = _grow_folds(x, y, weight, fold, classes, seed, growth)
        losses = _losses(each, x, y, weight, fold, classes)
        rounds = int(np.argmax(losses <= NEARLY * losses.min()))
        if best is None or losses[rounds] < best[0]:
            best = float(losses[rounds]), tuple(f.first(max(rounds, 1)) for f in each)
    assert best is not None
    return Forests(best[1], classes > 0), best[0]


def _as_trees_see(x: np.ndarray) -> np.ndarray:
    """In single precision, as scikit-learn's exact trees do, held in double."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(np.asarray(x, np.float32), np.float64)


def _grow_folds(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray, fold: np.ndarray, classes: int, seed: int,
    growth: Growth,
) -> list[Forest]:  # fmt: skip
    exact = len(x) <= EXACT_ROWS and x.size <= EXACT_CELLS

    def one(k: int) -> Forest:
        seen = (fold != k) & (weight > 0)
        parts = x[seen], y[seen], weight[seen]
        # OpenMP's threads spin while they wait for one another, which on a busy machine takes a
        # hundred times as long as the work; the limit is that of this thread
        with threadpool_limits(1, user_api="openmp"):
            return (_exact if exact else _binned)(*parts, classes, seed + k, growth)

    return side_by_side(one, range(int(fold.max()) + 1))


def side_by_side(function: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
    """The function of each job, on all cores."""
    if len(jobs) == 1:
        return [function(jobs[0])]
    with ThreadPoolExecutor(min(xla_threads(), len(jobs))) as threads:
        return list(threads.map(function, jobs))


def _exact(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray, classes: int, seed: int, growth: Growth
) -> Forest:
    """Trees that try every threshold."""
    present = np.unique(y) if classes else np.zeros(1)
    if classes and len(present) == 1:
        return _every_class(_joined([], [], np.zeros(1)), present, classes, len(x))
    kind: Any = GradientBoostingClassifier if classes else GradientBoostingRegressor
    model = kind(
        learning_rate=growth.rate, n_estimators=growth.trees, max_depth=growth.depth,
        subsample=growth.rows, max_features=growth.columns, random_state=seed,
        min_samples_leaf=min(3, len(x)),
    ).fit(x, y, weight)  # fmt: skip
    trees = [_nodes(tree.tree_, growth.rate) for stage in model.estimators_ for tree in stage]
    constant = np.ravel(model._raw_predict_init(x[:1])).astype(np.float64)
    forest = _joined(trees, _turns(len(trees), len(constant)), constant)
    return _every_class(forest, present, classes, len(x)) if classes else forest


def _nodes(tree: Any, rate: float) -> np.ndarray:
    """The nodes of an exact tree in the form of the binned ones."""
    nodes = np.zeros(tree.node_count, PREDICTOR_RECORD_DTYPE)
    leaf = tree.children_left < 0
    nodes["value"] = rate * tree.value[:, 0, 0]
    nodes["is_leaf"] = leaf
    nodes["feature_idx"] = np.where(leaf, 0, tree.feature)
    nodes["num_threshold"] = np.where(leaf, 0, tree.threshold)
    nodes["left"] = np.where(leaf, 0, tree.children_left)
    nodes["right"] = np.where(leaf, 0, tree.children_right)
    return nodes


def _binned(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray, classes: int, seed: int, growth: Growth
) -> Forest:
    """Trees that try the thresholds between 255 bins."""
    present = np.unique(y) if classes else np.zeros(1)
    if classes and len(present) == 1:
        return _every_class(_joined([], [], np.zeros(1)), present, classes, len(x))
    kind: Any = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    model = kind(
        learning_rate=growth.rate, max_iter=growth.trees, max_features=growth.columns,
        max_leaf_nodes=2**growth.depth - 1, min_samples_leaf=20, l2_regularization=1.0,
        early_stopping=False, random_state=seed,
    ).fit(x, y, weight)  # fmt: skip
    constant = np.ravel(model._baseline_prediction).astype(np.float64)
    trees = [tree.nodes for stage in model._predictors for tree in stage]
    forest = _joined(trees, _turns(len(trees), len(constant)), constant)
    return _every_class(forest, present, classes, len(x)) if classes else forest


def _every_class(forest: Forest, present: np.ndarray, classes: int, rows: int) -> Forest:
    """With a score for every class; one that no row had is as rare as one row in all makes it."""
    if len(present) == classes:
        return forest
    known = forest.constant
    trees = [forest.nodes[a:b] for a, b in pairwise(forest.starts)]
    if len(present) == 2:  # one score, log p₁ / p₀, becomes two
        known = np.array([-0.5, 0.5]) * known
        trees = [_scaled(nodes, by) for nodes in trees for by in (-0.5, 0.5)]
    constant = np.full(classes, np.min(known) - np.log(rows))
    constant[present.astype(int)] = known
    flat = np.zeros(1, PREDICTOR_RECORD_DTYPE)
    flat["is_leaf"] = 1
    every: list[np.ndarray] = []
    for begin in range(0, len(trees), len(present)):
        own = dict(zip(present.astype(int), trees[begin : begin + len(present)], strict=True))
        every += [own.get(c, flat) for c in range(classes)]
    return _joined(every, _turns(len(every), classes), constant)


def _scaled(nodes: np.ndarray, by: float) -> np.ndarray:
    nodes = nodes.copy()
    nodes["value"] *= by
    return nodes


def _turns(trees: int, outputs: int) -> np.ndarray:
    return np.arange(trees) % outputs


def _joined(trees: list[np.ndarray], output: Any, constant: np.ndarray) -> Forest:
    starts = np.concatenate([[0], np.cumsum([len(t) for t in trees])]).astype(np.int64)
    nodes = np.concatenate(trees) if trees else np.empty(0, PREDICTOR_RECORD_DTYPE)
    return Forest(nodes, starts, np.asarray(output, np.int64), constant)


def _losses(
    each: list[Forest], x: np.ndarray, y: np.ndarray, weight: np.ndarray, fold: np.ndarray,
    classes: int,
) -> np.ndarray:  # fmt: skip
    """The mean loss of left-out rows after each number of rounds, from none on."""
    total: Any = 0.0
    blocks = [
        (forest, own[i : i + BLOCK])
        for k, forest in enumerate(each)
        for own in [np.flatnonzero((fold == k) & (weight > 0))]
        for i in range(0, len(own), BLOCK)
    ]
    for forest, own in blocks:
        outputs = len(forest.constant)
        added = forest.steps(x[own]).reshape(forest.rounds, outputs, -1)
        raw = np.concatenate([np.zeros((1, *added.shape[1:])), np.cumsum(added, axis=0)])
        raw += forest.constant[:, None]
        if not classes:
            loss = np.square(raw[:, 0] - y[own])
        elif outputs == 1:
            loss = np.logaddexp(0, np.where(y[own] == 1, -raw[:, 0], raw[:, 0]))
        else:
            picked = raw[:, y[own].astype(int), np.arange(len(own))]
            loss = np.logaddexp.reduce(raw, axis=1) - picked
        total = total + loss @ weight[own]
    return np.asarray(total / weight[weight > 0].sum())


# -- in files


def to_arrays(forests: Forests) -> Arrays:
    """Plain arrays of all forests, one after another."""
    each = forests.each
    nodes = np.concatenate([f.nodes for f in each])
    arrays: Arrays = {
        "trees/value": nodes["value"],
        "trees/feature": nodes["feature_idx"].astype(np.int32),
        "trees/threshold": nodes["num_threshold"],
        "trees/left": np.where(nodes["is_leaf"], 0, nodes["left"]).astype(np.int32),
        "trees/right": np.where(nodes["is_leaf"], 0, nodes["right"]).astype(np.int32),
        "trees/lengths": np.concatenate([np.diff(f.starts) for f in each]).astype(np.int32),
        "trees/constant": np.stack([f.constant for f in each]),
    }
    return arrays


def from_arrays(arrays: Arrays, columns: int, classes: bool) -> Forests:
    """The forests of a file; nodes that lead nowhere, or back, are refused.

    Args:
        arrays: of the file.
        columns: how many inputs there are.
        classes: whether the outputs are scores of classes.
    """
    parts = {name: _column(arrays, name, dtype) for name, dtype in FIELDS.items()}
    lengths = _column(arrays, "lengths", np.int32)
    constant = arrays.get("trees/constant")
    if constant is None or constant.ndim != 2 or constant.dtype != np.float64:
        raise CheckpointError("its trees have no constants")
    count, outputs = constant.shape
    starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    size = len(parts["value"])
    same = all(len(part) == size for part in parts.values())
    whole = count and outputs and len(lengths) % (count * outputs) == 0
    if not (same and whole and np.all(lengths > 0) and starts[-1] == size <= MOST_NODES):
        raise CheckpointError("its trees are not whole")
    finite = [parts["value"], parts["threshold"], constant]
    if not all(np.all(np.isfinite(a)) for a in finite):
        raise CheckpointError("its trees hold values that are not finite")
    # children come after their parent within the same tree: every walk ends at a leaf
    own = np.arange(size) - np.repeat(starts[:-1], lengths)
    room = np.repeat(lengths, lengths)
    leaf = (parts["left"] == 0) & (parts["right"] == 0)
    onwards = [(parts[s] > own) & (parts[s] < room) for s in ("left", "right")]
    known = (parts["feature"] >= 0) & (parts["feature"] < columns)
    if not np.all(leaf | (onwards[0] & onwards[1] & known)):
        raise CheckpointError("its trees have nodes that lead nowhere")
    nodes = np.zeros(size, PREDICTOR_RECORD_DTYPE)
    nodes["value"], nodes["num_threshold"] = parts["value"], parts["threshold"]
    nodes["feature_idx"] = np.where(leaf, 0, parts["feature"])
    nodes["left"], nodes["right"], nodes["is_leaf"] = parts["left"], parts["right"], leaf
    each, trees = [], len(lengths) // count
    for k in range(count):
        mine = starts[k * trees : (k + 1) * trees + 1]
        output = np.tile(np.arange(outputs), trees // outputs)
        each.append(Forest(nodes[mine[0] : mine[-1]], mine - mine[0], output, constant[k]))
    return Forests(tuple(each), classes)


def _column(arrays: Arrays, name: str, dtype: Any) -> np.ndarray:
    array = arrays.get(f"trees/{name}")
    if array is None or array.ndim != 1 or array.dtype != dtype:
        raise CheckpointError(f"its trees have no {name}")
    return array
