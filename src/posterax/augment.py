"""Augmentation: random changes of a minibatch's images, inside the compiled step.

``px.fit(…, augment=px.augment.Shift(4))``. Every step changes its own minibatch, with a key of its
own, so the data stay on the device as they are (uint8 images too) and a resumed fit repeats the
same changes. Validation and prediction see the images unchanged.

The random crop after zero padding of Krizhevsky et al. is ``Shift``: a crop of a padded image is
the image, moved.
"""

import numbers
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ._util.checks import one_of, whole_number
from ._util.tree import same_structure


class _OfImages(eqx.Module):
    """Applies ``change(key, images, axis)`` to every array of x that holds images."""

    def __call__(self, key: jax.Array, x: PyTree) -> Any:
        """The batch with its images changed; other arrays of a tree stay as they are.

        In a tree every array with three or four axes is a batch of images, (N, H, W) or with
        channels, and all of them get the same random numbers: an image and its mask move together.
        """
        name = type(self).__name__
        leaves, treedef = jax.tree.flatten(x)
        if not any(leaf.ndim in (3, 4) for leaf in leaves):
            shapes = ", ".join(str(leaf.shape) for leaf in leaves)
            raise ValueError(
                f"augment: {name} needs images (N, H, W) or (N, C, H, W), got x of shape {shapes}"
            )
        changed = [
            self.change(key, leaf, self._rows_axis(leaf)) if leaf.ndim in (3, 4) else leaf
            for leaf in leaves
        ]
        return jax.tree.unflatten(treedef, changed)

    def _rows_axis(self, images: jax.Array) -> int:
        """The axis of the rows, H; the columns, W, follow it."""
        last = self.channels == "last"  # type: ignore[attr-defined]
        if images.ndim == 4 and not last and images.shape[-1] <= 4 < images.shape[1]:
            name = type(self).__name__
            raise ValueError(
                f"augment: x of shape {images.shape} has its channels last; use "
                f'{name}(…, channels="last")'
            )
        return 1 if images.ndim == 3 or last else 2

    def change(self, key: jax.Array, images: jax.Array, axis: int) -> jax.Array:
        raise NotImplementedError


class Shift(_OfImages):
    """Moves every image by its own number of pixels, up to ``pixels`` each way, evenly drawn.

    ``Shift(4)`` is the usual augmentation of CIFAR images: zero padding by 4, then a random crop.

    Args:
        pixels: the most pixels, in both directions.
        fill: what comes in at the border.
        channels: where images with four axes have their channels: ``"first"`` (N, C, H, W) or
            ``"last"`` (N, H, W, C).

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> images = jnp.full((2, 5, 5), 255, jnp.uint8)
        >>> moved = px.augment.Shift(2)(jax.random.key(0), images)
        >>> moved.shape, moved.dtype
        ((2, 5, 5), dtype('uint8'))
    """

    pixels: int = eqx.field(static=True)
    fill: float = eqx.field(static=True)
    channels: str = eqx.field(static=True)

    def __init__(self, pixels: int, fill: float = 0, *, channels: str = "first"):
        self.pixels = whole_number("pixels", pixels)
        if not isinstance(fill, numbers.Real) or not np.isfinite(fill):
            raise ValueError(f"fill must be a finite number, got {fill!r}")
        self.fill = fill
        self.channels = one_of("channels", channels, ("first", "last"))

    def change(self, key: jax.Array, images: jax.Array, axis: int) -> jax.Array:
        p, sizes = self.pixels, images.shape[axis : axis + 2]
        if p >= min(sizes):
            raise ValueError(f"augment: Shift({p}) moves images of {sizes} out of sight")
        fill = np.asarray(self.fill).astype(images.dtype)
        if jnp.issubdtype(images.dtype, jnp.integer) and fill != self.fill:
            raise ValueError(f"augment: Shift(fill={self.fill}) is no value of {images.dtype}")
        border = [(p, p) if a in (axis, axis + 1) else (0, 0) for a in range(images.ndim)]
        padded = jnp.pad(images, border, constant_values=fill)
        corners = jax.random.randint(key, (len(images), 2), 0, 2 * p + 1)

        def crop(image: jax.Array, corner: jax.Array) -> jax.Array:
            start: list[Any] = [0] * image.ndim
            start[axis - 1 : axis + 1] = corner[0], corner[1]
            return jax.lax.dynamic_slice(image, start, images.shape[1:])

        return jax.vmap(crop)(padded, corners)


class Flip(_OfImages):
    """Mirrors every image left to right, with probability 1/2.

    Args:
        channels: where images with four axes have their channels: ``"first"`` (N, C, H, W) or
            ``"last"`` (N, H, W, C).

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> image = jnp.arange(4).reshape(1, 2, 2)
        >>> px.augment.Flip()(jax.random.key(1), image).tolist() in (
        ...     [[[0, 1], [2, 3]]], [[[1, 0], [3, 2]]]
        ... )
        True
    """

    channels: str = eqx.field(static=True)

    def __init__(self, *, channels: str = "first"):
        self.channels = one_of("channels", channels, ("first", "last"))

    def change(self, key: jax.Array, images: jax.Array, axis: int) -> jax.Array:
        coins = jax.random.bernoulli(key, 0.5, (len(images),) + (1,) * (images.ndim - 1))
        return jnp.where(coins, jnp.flip(images, axis + 1), images)


class InOrder(eqx.Module):
    """Several augmentations, one after another."""

    parts: tuple[Any, ...]

    def __call__(self, key: jax.Array, x: PyTree) -> Any:
        for i, part in enumerate(self.parts):
            x = part(jax.random.fold_in(key, i), x)
        return x


class Own(eqx.Module):
    """A function of the user's, in a form that compiled programs take as an argument."""

    arrays: Any
    rest: Any = eqx.field(static=True)

    def __init__(self, function: Callable[[jax.Array, Any], Any]):
        self.arrays, self.rest = eqx.partition(function, eqx.is_array)

    def __call__(self, key: jax.Array, x: PyTree) -> Any:
        return eqx.combine(self.arrays, self.rest)(key, x)


def as_augment(augment: Any) -> Any:
    """What ``fit`` takes as ``augment``, in one form: ``(key, x) → x``, or ``None``.

    Args:
        augment: an augmentation of this module, a tuple or list of several in order, or any
            function ``(key, x) → x`` of a batch of inputs (the whole tree where x is one).

    Example:
        >>> import posterax as px
        >>> px.augment.as_augment([px.augment.Flip()])
        InOrder(parts=(Flip(channels='first'),))
    """
    if augment is None or isinstance(augment, _OfImages | InOrder | Own):
        return augment
    if isinstance(augment, tuple | list) and augment:
        if any(part is None for part in augment):
            raise TypeError("augment: None among several; leave it out")
        return InOrder(tuple(as_augment(part) for part in augment))
    if isinstance(augment, type):
        raise TypeError(f"augment is the class {augment.__name__}; call it: {augment.__name__}(…)")
    if not callable(augment):
        raise TypeError(
            f"augment must be one of px.augment, a function (key, x) → x or a list, got {augment!r}"
        )
    return Own(augment)


def check_augment(
    augment: Any, x: PyTree, target: tuple[int, ...] = (), module: Any = None
) -> None:
    """Refuse an augmentation that does not give back what it took, or not what belongs to y.

    Args:
        augment: in the form of ``as_augment``.
        x: a batch of inputs, by shape.
        target: the shape of one target.
        module: the network, where it can say what it reads.
    """
    if augment is None:
        return
    _check_moves(augment, x, target, module)
    try:
        changed = jax.eval_shape(augment, jax.random.key(0), x)
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"augment: {reason.removeprefix('augment: ')}") from error
    given, got = ([(a.shape, str(a.dtype)) for a in jax.tree.leaves(t)] for t in (x, changed))
    if not same_structure(x, changed) or given != got:
        raise ValueError(f"augment must keep shapes and types: x is {given}, it returns {got}")


def _check_moves(augment: Any, x: PyTree, target: tuple[int, ...], module: Any) -> None:
    """Refuse to move what would no longer fit its targets, or is no image."""
    parts = augment.parts if isinstance(augment, InOrder) else (augment,)
    moving = next((part for part in parts if isinstance(part, _OfImages)), None)
    for part in parts:
        if isinstance(part, InOrder):
            _check_moves(part, x, target, module)
    if moving is None:
        return
    name = type(moving).__name__
    if len(target) > 1:
        raise ValueError(
            f"augment: {name} moves the images and not their targets {target}: leave it out"
        )
    leaves = jax.tree.leaves(x)
    masks = {leaf.shape for leaf in leaves if leaf.dtype == bool and leaf.ndim == 2}
    if getattr(module, "of_sequences", False) or any(
        leaf.ndim == 3 and leaf.shape[:2] in masks for leaf in leaves
    ):
        raise ValueError(f"augment: {name} is for images, and x holds sequences (N, T, features)")
