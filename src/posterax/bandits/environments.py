r"""Environments: tables with labels played as bandits, the wheel, and what changes.

A row of a table is drawn with replacement; its features are the context, and its class says what
each action pays. With the classes as actions and 1 for the right one, any classification is a
bandit: the policy is told whether it was right, not what would have been.
"""

from io import IOBase
from pathlib import Path
from typing import IO, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from .._util.admit import admit, admit_float64
from .._util.checks import fraction, one_of, whole_number
from .base import Environment, Interaction, check_environment
from .tables import check_names, encode, read_csv, table

NO_NUMBER = ("na", "n/a", "nan", "null", "none")  # in a column of numbers: missing


class Table(Environment):
    """Rows with a class each; see [`from_table`][posterax.bandits.from_table] for what is paid."""

    contexts: jax.Array  # (N, features)
    labels: jax.Array  # (N,) classes as numbers
    rewards: jax.Array  # (classes, actions)
    otherwise: jax.Array  # (classes, actions), paid instead with probability 1 − chance
    chance: float = eqx.field(static=True)
    classes: tuple[str, ...] = eqx.field(static=True)  # their names
    actions: int = eqx.field(static=True)
    features: int = eqx.field(static=True)

    def draw(self, key: jax.Array, t: jax.Array) -> Interaction:
        return self.of_class(key, 0)

    def of_class(self, key: jax.Array, shift: jax.Array | int) -> Interaction:
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
    x: ArrayLike,
    y: ArrayLike,
    *,
    rewards: ArrayLike | None = None,
    otherwise: ArrayLike | None = None,
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
    if values.shape != contexts.shape[:1]:
        raise ValueError(
            f"y must have one class for each of the {len(contexts)} rows of x, got {values.shape}"
        )
    missing = np.flatnonzero(pd.isna(values))
    if len(missing):
        rows = ", ".join(map(str, missing[:5])) + ", …" * (len(missing) > 5)
        raise ValueError(f"y: no class in {len(missing)} rows ({rows}); leave them out")
    values = values.astype(str) if values.dtype == object else values
    classes, labels = np.unique(values, return_inverse=True)
    paid = admit_float64(np.eye(len(classes)) if rewards is None else rewards, "rewards")
    if paid.ndim != 2 or len(paid) != len(classes):
        raise ValueError(
            f"rewards must have a row for each of the {len(classes)} classes and a column for "
            f"each action, got {paid.shape}"
        )
    other = paid if otherwise is None else admit_float64(otherwise, "otherwise")
    if other.shape != paid.shape:
        raise ValueError(
            f"otherwise must have the shape of rewards {paid.shape}, got {other.shape}"
        )
    if not (np.isfinite(paid).all() and np.isfinite(other).all()):
        raise ValueError("rewards and otherwise must be finite")
    return Table(
        jnp.asarray(contexts), jnp.asarray(labels, jnp.int32),
        jnp.asarray(admit(paid, "rewards", jnp.float32)),
        jnp.asarray(admit(other, "otherwise", jnp.float32)),
        1.0 if otherwise is None else fraction("chance", chance), tuple(str(c) for c in classes),
        paid.shape[1], contexts.shape[1],
    )  # fmt: skip


def from_csv(path: str | Path | IO[str], label: str, **options: Any) -> Table:
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
    start = path.tell() if isinstance(path, IOBase) else 0
    # pandas would give the second of two columns with one name another
    header = pd.read_csv(path, header=None, nrows=1, dtype=str, skipinitialspace=True)
    check_names(pd.Index(header.iloc[0].dropna()))
    if isinstance(path, IOBase):
        path.seek(start)
    frame = read_csv(path)
    for name in frame.columns.drop(label, errors="ignore"):
        column = frame[name]
        if not pd.api.types.is_numeric_dtype(column):
            # numbers, where it has some and nothing else but words for missing
            known = column[column.notna() & ~column.astype(str).str.lower().isin(NO_NUMBER)]
            numbers = pd.to_numeric(known, errors="coerce")
            if len(known) and numbers.notna().all():
                frame[name] = numbers.reindex(column.index)
    return _labelled(frame, label, **options)


def _labelled(frame: pd.DataFrame, label: str, **options: Any) -> Table:
    if label not in frame:
        raise ValueError(f"label must be one of the columns {list(frame)}, got {label!r}")
    check_names(frame.columns)
    frame = frame[frame[label].notna()]
    return from_table(frame.drop(columns=label), frame[label].to_numpy(), **options)


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
        expected = jnp.ones(5).at[0].set(1.2)
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


# -- environments that change: what was learned stops being true


class Switching(Environment):
    """See [`switching`][posterax.bandits.switching]."""

    inner: Environment
    every: int = eqx.field(static=True)
    what: str = eqx.field(static=True)
    actions: int = eqx.field(static=True)
    features: int = eqx.field(static=True)

    def draw(self, key: jax.Array, t: jax.Array) -> Interaction:
        shift = jnp.asarray(t) // self.every
        if self.what == "classes" and isinstance(self.inner, Table):
            return self.inner.of_class(key, shift)
        context, *pays = self.inner.draw(key, t)
        return Interaction(context, *(jnp.roll(pay, shift % self.actions) for pay in pays))


def switching(environment: Environment, every: int, *, what: str = "actions") -> Switching:
    """An environment whose pay changes its meaning after every so many interactions.

    Args:
        environment: any; the contexts stay as they are.
        every: interactions between two changes. After as many changes as there are actions
            (classes) all is as it was in the beginning.
        what: ``"actions"``: each action pays what its neighbour paid; or ``"classes"``, of a
            table: each class is paid as its neighbour was, and the poisonous mushrooms become the
            edible ones.

    Example:
        >>> import jax
        >>> import posterax as px
        >>> still = px.bandits.wheel(0.5)
        >>> moving = px.bandits.switching(still, every=100)
        >>> moving.draw(jax.random.key(0), 99).expected.argmax() == 0
        Array(True, dtype=bool)
        >>> moving.draw(jax.random.key(0), 100).expected.argmax() == 1
        Array(True, dtype=bool)
    """
    check_environment(environment)
    one_of("what", what, ("actions", "classes"))
    if what == "classes" and not isinstance(environment, Table):
        raise ValueError("what='classes' is for tables (px.bandits.from_table); use 'actions'")
    sizes = environment.actions, environment.features
    return Switching(environment, whole_number("every", every), what, *sizes)
