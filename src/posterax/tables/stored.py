r"""A standardised table on disk, a file for each fold, and minibatches in a new order every epoch.

A row of a file is (x, what trees say that left its fold out, y, weight) in float32. Fold k of K
has every K-th row of a batch, from row k on: where member m of an ensemble leaves out the examples
whose number leaves the remainder m mod K, it leaves out that file, whatever the order inside of it.

Rows are read in runs: a few hundred that follow one another, from some hundred places at a time,
which are then shuffled. So a disk reads in long strokes and a sorted table is well mixed.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from .._util.tree import human_bytes
from ..data import Stream
from .folds import fold_of
from .portfolio import FOLDS
from .standardise import Rows
from .trees import Forests

BATCH = 500  # rows of a step, with folds in equal parts
RUN = 1 << 16  # bytes that are read at once
MIXED = 1 << 24  # bytes of a fold that are shuffled together


class Stored:
    """Rows of a table on disk, until ``with`` ends.

    Args:
        columns: of x, of what trees say, and of y.
        folds: K.
        rows: at most so many will come; without room for them nothing is begun.
        seed: of the order.
        whole: whether targets are whole numbers, labels.

    Example:
        >>> import numpy as np
        >>> from posterax.tables.stored import Stored
        >>> x = np.arange(20.0)[:, None]
        >>> with Stored((1, 0, 1), folds=2, rows=20) as stored:
        ...     stored.add(x, x[:, :0], x[:, 0], np.ones(20), np.arange(20) % 2)
        ...     ((inputs, y, weight),) = [*stored.batches(based=False)]
        >>> inputs.shape, sorted(y[weight > 0].tolist()) == list(range(20))
        ((20, 1), True)
        >>> (y % 2).tolist()[:4]
        [0.0, 1.0, 0.0, 1.0]
    """

    def __init__(
        self, columns: tuple[int, int, int], folds: int, rows: int, seed: int = 0, *,
        whole: bool = False,
    ):  # fmt: skip
        self.columns, self.width, self.folds = columns, sum(columns) + 1, folds
        self.seed, self.whole, self.counts, self.total = seed, whole, [0] * folds, 0.0
        self.shape: tuple[int, ...] = ()  # of a target
        self.bytes = 4 * self.width * rows
        there = Path(tempfile.gettempdir())
        free = shutil.disk_usage(there).free
        if self.bytes > free:
            raise OSError(
                f"X: its {rows:,} rows take {human_bytes(self.bytes)} on disk while they are "
                f"learned, and {there} has {human_bytes(free)} free: make room, or set the "
                "environment variable TMPDIR to a folder with room"
            )
        self.folder = tempfile.TemporaryDirectory(prefix="posterax-")
        self.files = [Path(self.folder.name) / f"fold-{k}" for k in range(folds)]

    def __enter__(self) -> "Stored":
        return self

    def __exit__(self, *error: object) -> None:
        self.folder.cleanup()

    def add(
        self, x: np.ndarray, offsets: np.ndarray, y: np.ndarray, weight: np.ndarray,
        fold: np.ndarray,
    ) -> None:  # fmt: skip
        """Put rows behind those of their folds."""
        self.shape = y.shape[1:]
        table = np.column_stack([x, offsets, y.reshape(len(y), -1), weight]).astype(np.float32)
        kept = weight > 0
        for k, file in enumerate(self.files):
            own = table[kept & (fold == k)]
            try:
                with file.open("ab") as end:
                    end.write(own.tobytes())
            except OSError as error:
                said = f"{error.strerror}; TMPDIR names a folder with more room"
                raise OSError(error.errno, said, str(file)) from None
            self.counts[k] += len(own)
        self.total += float(weight.sum())

    def batches(self, *, based: bool) -> "Batches":
        """Minibatches ``(x, y, weight)``; ``based``: inputs have with them what trees say."""
        return Batches(self, based)

    def read(self, fold: int, start: int, rows: int) -> np.ndarray:
        """Some rows of a fold, fewer at its end."""
        begin = 4 * self.width * start
        got = np.fromfile(self.files[fold], np.float32, rows * self.width, offset=begin)
        return got.reshape(-1, self.width)


class Whole:
    """All rows of a large table: standardised in chunks, and stored once there are trees.

    Args:
        rows: about how many there are.
        chunks: gives them, with their numbers in the table, as often as it is called.
        numbers: of the rows that are the sample.
        seed: of the order in which they are learned.
    """

    def __init__(
        self, rows: int, chunks: Callable[[], Iterator[tuple[Rows, np.ndarray]]],
        numbers: np.ndarray, seed: int,
    ):  # fmt: skip
        self.rows, self.chunks, self.seed = rows, chunks, seed
        self.fold = fold_of(numbers, FOLDS)
        self.stored: Stored | None = None
        self.streams: dict[bool, Stream] = {}

    def __enter__(self) -> "Whole":
        return self

    def __exit__(self, *error: object) -> None:
        if self.stored is not None:
            self.stored.__exit__(*error)

    @property
    def total(self) -> float:
        """The sum of the weights."""
        assert self.stored is not None
        return self.stored.total

    def store(self, forests: Forests | None, tell: Callable[[str], None]) -> None:
        """Write all rows, with what trees say that had not seen their fold."""
        for rows, numbers in self.chunks():
            fold, several = fold_of(numbers, FOLDS), rows.y.reshape(len(rows.y), -1).shape[1]
            none = np.empty((len(rows.x), 0))
            said = none if forests is None else forests.out_of_fold(rows.x, fold)
            if self.stored is None:
                columns = rows.x.shape[1], said.shape[1], several
                whole = rows.y.dtype.kind in "iu"
                self.stored = Stored(columns, FOLDS, self.rows, self.seed, whole=whole)
                tell(f"writing {self.rows:,} rows, {human_bytes(self.stored.bytes)}")
            self.stored.add(rows.x, said, rows.y, rows.weight, fold)

    def stream(self, *, based: bool) -> Stream:
        """The minibatches."""
        if based not in self.streams:
            assert self.stored is not None
            self.streams[based] = Stream(self.stored.batches(based=based))
        return self.streams[based]


class Batches:
    """A re-iterable source for ``px.fit``; every pass over it has an order of its own.

    Folds that are shorter are filled up with rows of weight 0.
    """

    def __init__(self, stored: Stored, based: bool):
        self.stored, self.based, self.epoch = stored, based, 0
        self.each = max(1, min(BATCH // stored.folds, max(stored.counts)))  # rows of a fold

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        folds, inputs = self.stored.folds, self.stored.columns[0]
        random = np.random.default_rng([self.stored.seed, self.epoch])
        self.epoch += 1
        parts = [self._groups(k, own) for k, own in enumerate(random.spawn(folds))]
        x = inputs + self.stored.columns[1]
        for _ in range(-(-max(self.stored.counts) // self.each)):
            rows = np.stack([next(part) for part in parts], axis=1)
            rows = rows.reshape(-1, self.stored.width)
            y = rows[:, x:-1].reshape(len(rows), *self.stored.shape)
            y = y.astype(np.int32) if self.stored.whole else y
            yield rows[:, : x if self.based else inputs], y, rows[:, -1]

    def _groups(self, fold: int, random: np.random.Generator) -> Iterator[np.ndarray]:
        """So many rows of a fold at a time as a batch has of it, without an end."""
        stored, count = self.stored, self.stored.counts[fold]
        row = 4 * stored.width
        run = max(1, RUN // row)
        starts = random.permutation(np.arange(0, count, run))
        rest = np.empty((0, stored.width), np.float32)
        for some in np.array_split(starts, max(1, count * row // MIXED)):
            rows = np.concatenate([rest, *(stored.read(fold, start, run) for start in some)])
            rows = rows[random.permutation(len(rows))]
            whole = len(rows) // self.each * self.each
            yield from rows[:whole].reshape(-1, self.each, stored.width)
            rest = rows[whole:]
        # an empty fold is filled from another
        fill = stored.read(fold if count else int(np.argmax(stored.counts)), 0, 1).copy()
        fill[:, -1] = 0
        yield np.concatenate([rest, np.repeat(fill, self.each - len(rest), axis=0)])
        while True:
            yield np.repeat(fill, self.each, axis=0)
