"""UCI regression sets: read from a folder or fetched once, and the 20 splits of the literature."""

from typing import NamedTuple

import numpy as np

from posterax._util.writing import written
from posterax.bandits.tables import fetched, folders, nowhere


class Source(NamedTuple):
    """A set's file, its name on OpenML (and the version there), its size and the protocol's."""

    file: str
    openml: tuple[str, int] | None
    rows: int
    columns: int
    splits: int = 20
    width: int = 50  # of the one hidden layer


SETS = {
    "boston": Source("bostonHousing", ("boston", 1), 506, 13),
    "concrete": Source("concrete", ("Concrete_Data", 1), 1030, 8),
    "power": Source("power-plant", None, 9568, 4),
    "protein": Source(
        "protein-tertiary-structure", ("physicochemical-protein", 1), 45730, 9, splits=5, width=100
    ),
    "wine": Source("wine-quality-red", ("wine-quality-red", 1), 1599, 11),
    "yacht": Source("yacht", None, 308, 6),
}  # fmt: skip


class Rows(NamedTuple):
    """Inputs (N, D) and targets (N,), in their own units."""

    x: np.ndarray
    y: np.ndarray

    def at(self, rows: np.ndarray) -> "Rows":
        return Rows(self.x[rows], self.y[rows])


def load_uci(name: str) -> Rows:
    """A set by its name: ``"boston"``, ``"concrete"``, ``"power"``, ``"protein"``, ``"wine"`` or
    ``"yacht"``.

    ``uci/FILE.npz`` with ``x`` and ``y`` is read from the first of ``folders()`` that has it.
    Otherwise scikit-learn fetches four of the six from OpenML, and they are stored in the cache.

    Raises:
        FileNotFoundError: where there is none to be had, with what to do.
    """
    if name not in SETS:
        raise ValueError(f"name must be one of {', '.join(SETS)}, got {name!r}")
    source = SETS[name]
    for folder in folders():
        path = folder / "uci" / f"{source.file}.npz"
        if path.is_file():
            with np.load(path, allow_pickle=False) as stored:
                return _checked(name, Rows(stored["x"], stored["y"]))
    file = f"uci/{source.file}.npz (x: {source.rows} × {source.columns}, y: {source.rows})"
    openml = source.openml
    if openml is None:
        raise FileNotFoundError(f"{file} is {nowhere()}")
    rows = fetched(file, lambda: _checked(name, _fetch(*openml)))
    kept = folders()[-1] / "uci"
    kept.mkdir(parents=True, exist_ok=True)
    with written(kept / f"{source.file}.npz", binary=True) as out:
        np.savez_compressed(out, x=rows.x, y=rows.y)
    return rows


def _fetch(name: str, version: int) -> Rows:
    from sklearn.datasets import fetch_openml

    answer = fetch_openml(name, version=version, as_frame=True, parser="auto")
    frame = answer.frame.astype(float)
    # sets without a marked target have it as their last column
    target = answer.target_names[0] if answer.target_names else frame.columns[-1]
    return Rows(frame.drop(columns=target).to_numpy(), frame[target].to_numpy())


def _checked(name: str, rows: Rows) -> Rows:
    source, shape = SETS[name], rows.x.shape
    if shape != (source.rows, source.columns) or rows.y.shape != (source.rows,):
        raise ValueError(
            f"{name} should have {source.rows} rows of {source.columns} columns, got {shape} "
            f"and {rows.y.shape}"
        )
    return Rows(rows.x.astype(np.float64), rows.y.astype(np.float64))


def splits(rows: int, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Numbers of the training and test rows, 90 % and 10 %, of every split.

    One generator makes all of them in turn: the splits of Gal and Ghahramani (2016), which are
    drawn as those of Hernández-Lobato and Adams (2015).

    Example:
        >>> from experiments.uci_data import splits
        >>> [(len(train), len(test)) for train, test in splits(506, 2)]
        [(455, 51), (455, 51)]
    """
    generator = np.random.RandomState(1)
    orders = [generator.choice(range(rows), rows, replace=False) for _ in range(count)]
    first = round(0.9 * rows)
    return [(order[:first], order[first:]) for order in orders]


class Standard(NamedTuple):
    """Means and deviations of training rows, to standardise with and to go back."""

    x_mean: np.ndarray
    x_scale: np.ndarray
    y_mean: float
    y_scale: float

    @classmethod
    def of(cls, rows: Rows) -> "Standard":
        """Of these rows; a column that is constant but for rounding is only centred.

        Example:
            >>> import numpy as np
            >>> from experiments.uci_data import Rows, Standard
            >>> rows = Rows(np.array([[0.0, 7.0], [2.0, 7.0]]), np.array([1.0, 5.0]))
            >>> standard = Standard.of(rows)
            >>> standard.x_scale, float(standard.y_scale)
            (array([1., 1.]), 2.0)
            >>> standard.of_rows(rows)[0]
            array([[-1.,  0.],
                   [ 1.,  0.]], dtype=float32)
        """
        mean, scale = rows.x.mean(0), rows.x.std(0)
        scale = np.where(scale > 1e-9 * np.maximum(np.abs(mean), 1), scale, 1.0)
        return cls(mean, scale, float(rows.y.mean()), float(rows.y.std()))

    def of_rows(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and targets of about unit size, as the networks take them."""
        x, y = (rows.x - self.x_mean) / self.x_scale, (rows.y - self.y_mean) / self.y_scale
        return x.astype(np.float32), y.astype(np.float32)
