"""Image sets of the experiments: read from a folder, or fetched once and cached."""

from typing import Any, NamedTuple

import numpy as np

from posterax._util.writing import written
from posterax.bandits.tables import fetched, folders, nowhere

OPENML = {"mnist": "mnist_784", "fashion_mnist": "Fashion-MNIST"}  # 70,000 each, test images last
TRAINING = 60_000


class Images(NamedTuple):
    """Pixels as bytes, (N, 28, 28), and labels; to learn from, and to test.

    A set that is only tested on has empty arrays to learn from.
    """

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def load(name: str) -> Images:
    """A set by its name: ``"mnist"``, ``"fashion_mnist"`` or ``"notmnist_test"``.

    ``NAME.npz`` with ``x_train``, ``y_train``, ``x_test`` and ``y_test`` is read from the first of
    ``folders()`` that has it. Otherwise scikit-learn fetches MNIST and Fashion-MNIST from OpenML,
    and they are stored in the cache; notMNIST's letters (``x_test``, ``y_test`` alone) have to be
    put there.

    Raises:
        FileNotFoundError: where there is none to be had, with what to do.
    """
    for folder in folders():
        path = folder / f"{name}.npz"
        if path.is_file():
            with np.load(path, allow_pickle=False) as stored:
                return _of(dict(stored))
    if name not in OPENML:
        raise FileNotFoundError(
            f"{name}.npz (x_test: N × 28 × 28 bytes, y_test: N labels) is {nowhere()}"
        )
    arrays = fetched(f"{name}.npz", lambda: _fetch(name))
    folders()[-1].mkdir(parents=True, exist_ok=True)
    with written(folders()[-1] / f"{name}.npz", binary=True) as file:
        np.savez_compressed(file, **arrays)
    return _of(arrays)


def _fetch(name: str) -> dict[str, Any]:
    from sklearn.datasets import fetch_openml

    answer = fetch_openml(OPENML[name], version=1, as_frame=False, parser="liac-arff")
    x, y = answer.data.reshape(-1, 28, 28).astype(np.uint8), answer.target.astype(np.uint8)
    first, last = slice(TRAINING), slice(TRAINING, None)
    return {"x_train": x[first], "y_train": y[first], "x_test": x[last], "y_test": y[last]}


def _of(stored: dict[str, np.ndarray]) -> Images:
    x_test, y_test = stored["x_test"], stored["y_test"].astype(np.int32)
    x, y = stored.get("x_train", x_test[:0]), stored.get("y_train", y_test[:0])
    return Images(x, y.astype(np.int32), x_test, y_test)


def inputs(x: np.ndarray) -> np.ndarray:
    """Bytes as the networks take them: flat, pixels / 255.

    Example:
        >>> import numpy as np
        >>> from experiments.data import inputs
        >>> inputs(np.full((2, 28, 28), 51, np.uint8))[0, :2]
        array([0.2, 0.2], dtype=float32)
    """
    return x.reshape(len(x), -1).astype(np.float32) / np.float32(255)


def spread(total: int, count: int) -> np.ndarray:
    """Numbers of ``count`` images spread evenly over a set: the first of MNIST's test are harder.

    Example:
        >>> from experiments.data import spread
        >>> spread(10, 5)
        array([0, 2, 4, 6, 8])
    """
    return np.arange(count) * total // count


def rotated(x: np.ndarray, degrees: float) -> np.ndarray:
    """Images turned about their centre, counter-clockwise, by linear interpolation.

    Example:
        >>> import numpy as np
        >>> from experiments.data import rotated
        >>> bar = np.zeros((1, 28, 28), np.uint8)
        >>> bar[0, 4:24, 13:15] = 255
        >>> bool(np.all(rotated(bar, 90) == bar.transpose(0, 2, 1)))
        True
    """
    from scipy.ndimage import rotate

    if degrees == 0:
        return x
    turned = rotate(x.astype(np.float32), degrees, axes=(1, 2), reshape=False, order=1)
    return np.clip(np.rint(turned), 0, 255).astype(np.uint8)
