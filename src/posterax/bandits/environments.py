r"""Environments: tables with labels played as bandits, and the wheel.

A row of a table is drawn with replacement; its features are the context, and its class says what
each action pays. With the classes as actions and 1 for the right one, any classification is a
bandit: the policy is told whether it was right, not what would have been.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._util.checks import fraction
from .base import Environment, Interaction
from .tables import table

NO_NUMBER = ("na", "n/a", "nan", "null", "none")  # in a column of numbers: missing


class Table(Environment):
    """Rows with a class each; see [`from_table`][posterax.bandits.from_table] for what is paid."""

    contexts: jax.Array  # (N, features)
    labels: jax.Array  # (N,) classes as numbers
    rewards: jax.Array  # (classes, actions)
    otherwise: jax.Array  # (classes, actions), paid instead with probability 1 − chance
    chance: float = eqx.field(static=True)
    classes: tuple[str, ...] = eqx.field(static=True)  # their names

    @property
    def actions(self) -> int:
        """How many there are to choose from."""
        return self.rewards.shape[1]

    @property
    def features(self) -> int:
        """Length of a context."""
        return self.contexts.shape[1]

    def draw(self, key: jax.Array, t: jax.Array) -> Interaction:
        return self.of_class(key, 0)

    def of_class(self, key: jax.Array, shift: Any) -> Interaction:
        """A row, paid as if its class were the one ``shift`` places further on."""
        for_row, for_luck = jax.random.split(key)
        row = jax.random.randint(for_row, (), 0, len(self.labels))
        label = (self.labels[row] + shift) % len(self.rewards)
        usual, other = self.rewards[label], self.otherwise[label]
        lucky = jax.random.uniform(for_luck) < self.chance
        return Interaction(
            self.contexts[row],
            jnp.where(lucky, usual, other),
            self.chance * usual + (1 - self.chance) * other,
        )


def from_table(
    x: Any,
    y: Any,
    *,
    rewards: Any = None,
    otherwise: Any = None,
    chance: float = 0.5,
) -> Table:
    """A classification as a bandit.

    Args:
        x: contexts: a data frame, or an array (N, features). Numbers are standardised, a missing
            one is the mean and marked in a column of its own; every other column becomes a column
            of zeros and ones for each value, a missing one being a value like any other.
        y: (N,) classes, of any type, none missing; they are put in sorted order.
        rewards: (classes, actions): what each action pays for each class (default: the actions are
            the classes, and the right one pays 1).
        otherwise: (classes, actions): what is paid instead now and then, where pay is a gamble.
        chance: the probability of ``rewards`` where there is ``otherwise``.

    Example:
        >>> import jax
        >>> import posterax as px
        >>> from sklearn.datasets import load_iris
        >>> environment = px.bandits.from_table(*load_iris(return_X_y=True))
        >>> environment.features, environment.actions
        (4, 3)
        >>> float(environment.draw(jax.random.key(0), 0).rewards.sum())
        1.0
    """
    contexts = encode(x)
    values = np.asarray(y)
    if values.ndim != 1 or len(values) != len(contexts) or not len(values):
        raise ValueError(
            f"y must have one class for each of the {len(contexts)} rows of x, got {values.shape}"
        )
    _check_labels(values)
    values = values.astype(str) if values.dtype == object else values
    classes, labels = np.unique(values, return_inverse=True)
    paid = np.eye(len(classes)) if rewards is None else np.asarray(rewards, np.float32)
    if paid.ndim != 2 or len(paid) != len(classes):
        raise ValueError(
            f"rewards must have a row for each of the {len(classes)} classes and a column for "
            f"each action, got {paid.shape}"
        )
    other = paid if otherwise is None else np.asarray(otherwise, np.float32)
    if other.shape != paid.shape:
        raise ValueError(
            f"otherwise must have the shape of rewards {paid.shape}, got {other.shape}"
        )
    if not (np.isfinite(paid).all() and np.isfinite(other).all()):
        raise ValueError("rewards and otherwise must be finite")
    return Table(
        jnp.asarray(contexts), jnp.asarray(labels, jnp.int32),
        jnp.asarray(paid, jnp.float32), jnp.asarray(other, jnp.float32),
        1.0 if otherwise is None else fraction("chance", chance), tuple(str(c) for c in classes),
    )  # fmt: skip


def from_csv(path: Any, label: str, **options: Any) -> Table:
    """A CSV file (also a compressed one) with a column of classes, as a bandit.

    Args:
        path: the file; the first line names the columns. ``?`` and empty cells are missing, and
            words such as ``NA`` where all else in a column is numbers; elsewhere they are values.
        label: the column of the classes; rows without one are left out.
        options: of [`from_table`][posterax.bandits.from_table].

    Example:
        >>> import io
        >>> import posterax as px
        >>> file = io.StringIO("colour,weight,ripe\\ngreen,80,no\\nred,95,yes\\n?,,yes\\n")
        >>> environment = px.bandits.from_csv(file, "ripe")
        >>> environment.classes, environment.features  # green, red, missing; weight, missing
        (('no', 'yes'), 5)
    """
    import pandas as pd

    start = path.tell() if hasattr(path, "seek") else 0
    # pandas would give the second of two columns with one name another
    header = pd.read_csv(path, header=None, nrows=1, dtype=str, skipinitialspace=True)
    _check_names(pd.Index(header.iloc[0].dropna()))
    if hasattr(path, "seek"):
        path.seek(start)
    frame = pd.read_csv(path, keep_default_na=False, na_values=["?", ""], skipinitialspace=True)
    for name in frame.columns.drop(label, errors="ignore"):
        if not pd.api.types.is_numeric_dtype(frame[name]):
            frame[name] = _numbers_or_words(frame[name])
    return _labelled(frame, label, **options)


def _numbers_or_words(column: Any) -> Any:
    """A column of text as numbers, where it has some and nothing else but words for missing."""
    import pandas as pd

    known = column[column.notna() & ~column.astype(str).str.lower().isin(NO_NUMBER)]
    numbers = pd.to_numeric(known, errors="coerce")
    return numbers.reindex(column.index) if len(known) and numbers.notna().all() else column


def _labelled(frame: Any, label: str, **options: Any) -> Table:
    if label not in frame:
        raise ValueError(f"label must be one of the columns {list(frame)}, got {label!r}")
    _check_names(frame.columns)
    frame = frame[frame[label].notna()]
    return from_table(frame.drop(columns=label), frame[label].to_numpy(), **options)


def _check_names(columns: Any) -> None:
    twice = columns[columns.duplicated()]
    if len(twice):
        raise ValueError(f"there is more than one column {twice[0]!r}: give each a name of its own")


def _check_labels(values: np.ndarray) -> None:
    import pandas as pd

    missing = np.flatnonzero(pd.isna(values))
    if len(missing):
        rows = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
        raise ValueError(f"y: no class in {len(missing)} rows ({rows}); leave them out")


def encode(x: Any) -> np.ndarray:
    """A table as numbers: standardised, or a column of zeros and ones for each value.

    Example:
        >>> import pandas as pd
        >>> from posterax.bandits.environments import encode
        >>> encode(pd.DataFrame({"a": [1.0, 3.0], "b": ["u", "v"]}))
        array([[-1.,  1.,  0.],
               [ 1.,  0.,  1.]], dtype=float32)
    """
    import pandas as pd

    from ..tables.standardise import standardiser

    frame = x if isinstance(x, pd.DataFrame) else pd.DataFrame(np.asarray(x))
    if not len(frame) or not len(frame.columns):
        raise ValueError(f"x needs at least one row and one column, got {frame.shape}")
    _check_names(frame.columns)
    frame = frame.infer_objects()  # numbers in arrays of objects are numbers
    parts = []
    for name in frame:
        column = frame[name]
        missing = column.isna().to_numpy()
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            values = column.to_numpy(np.float64, na_value=np.nan)[:, None]
            if not np.isfinite(values[~missing]).all():
                raise ValueError(f"x: column {name!r} has infinite values")
            if not missing.all():
                values = standardiser(values[~missing], np.ones((~missing).sum()))(values)
            parts.append(np.where(missing[:, None], 0, values))
            if missing.any():
                parts.append(missing[:, None])
        else:
            words = column.astype(object).where(~column.isna(), "?").astype(str)
            parts.append(pd.get_dummies(words).to_numpy())
    return np.concatenate(parts, 1).astype(np.float32)


# -- named ones


def mushroom() -> Table:
    """Eat or skip: 8124 mushrooms, 22 attributes (117 zeros and ones), 52 % of them edible.

    Action 1 eats: an edible one pays +5, a poisonous one −35 or +5, each with probability ½.
    Action 0 skips, for 0. The best that can be expected is 5 or 0: not to eat a mushroom that is
    edible costs 5, to eat a poisonous one 15.

    The table is read from the folder ``POSTERAX_DATA``, or fetched from OpenML once.

    Reference:
        Blundell, Cornebise, Kavukcuoglu and Wierstra, *Weight uncertainty in neural networks*,
        ICML 2015; the data are Schlimmer's (1987).
    """
    return _labelled(table("mushroom"), "class", rewards=[[0, 5], [0, -35]], otherwise=[[0, 5]] * 2)


def adult(label: str = "occupation") -> Table:
    """People of the US census of 1994: guess the occupation (14), or ``label="income"`` (2).

    Rows without a label are left out. The table is read from the folder ``POSTERAX_DATA``, or
    fetched from OpenML once.

    Reference:
        Riquelme, Tucker and Snoek, *Deep Bayesian bandits showdown*, ICLR 2018 (who leave out all
        rows with anything missing); the data are Kohavi's (1996).
    """
    return _labelled(table("adult"), label)


def covertype() -> Table:
    """Forest patches: guess which of 7 kinds of trees covers it, from 10 numbers and the soil.

    The table is read from the folder ``POSTERAX_DATA``, or fetched from OpenML once.

    Reference:
        Riquelme, Tucker and Snoek, *Deep Bayesian bandits showdown*, ICLR 2018; the data are
        Blackard and Dean's (1999).
    """
    return _labelled(table("covertype"), "cover-type")


class Wheel(Environment):
    """See [`wheel`][posterax.bandits.wheel]."""

    delta: float
    actions: int = eqx.field(static=True, default=5)
    features: int = eqx.field(static=True, default=2)

    def draw(self, key: jax.Array, t: jax.Array) -> Interaction:
        for_angle, for_radius, for_pay = jax.random.split(key, 3)
        angle = 2 * jnp.pi * jax.random.uniform(for_angle)
        radius = jnp.sqrt(jax.random.uniform(for_radius))
        context = radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        # 1 … 4 by the signs of both coordinates
        special = 1 + 2 * (context[0] < 0).astype(jnp.int32) + (context[1] < 0).astype(jnp.int32)
        expected = jnp.full(5, 1.0).at[0].set(1.2)
        expected = jnp.where((radius > self.delta) & (jnp.arange(5) == special), 50.0, expected)
        return Interaction(context, expected + 0.01 * jax.random.normal(for_pay, (5,)), expected)


def wheel(delta: float = 0.5) -> Wheel:
    """The wheel: exploration pays only near the rim, and there fiftyfold.

    Contexts are uniform on the disc of radius 1. Action 0 pays 1.2 everywhere, the others 1; but
    beyond the radius δ one of actions 1 to 4, by the quadrant, pays 50. All with noise of
    deviation 0.01. The share 1 − δ² of contexts lies beyond: at δ = 0.99 it is 2 %.

    Example:
        >>> import posterax as px
        >>> px.bandits.wheel(0.95).actions
        5

    Reference:
        Riquelme, Tucker and Snoek, *Deep Bayesian bandits showdown*, ICLR 2018.
    """
    return Wheel(fraction("delta", delta))
