"""Hashes of numbers and settings: what a fit, a file or a network is known by."""

import hashlib
import re

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree


def settings_fingerprint(tree: PyTree, numbers_of: PyTree = None) -> str:
    """A hash of a prior, a likelihood or other settings: what they are, and their numbers.

    ``numbers_of`` is the tree without those that do not count.
    """
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(tree))  # addresses change from run to run
    counted = tree if numbers_of is None else numbers_of
    numbers = data_fingerprint(eqx.filter(counted, eqx.is_array_like))
    return hashlib.blake2b((text + numbers).encode(), digest_size=16).hexdigest()


def data_fingerprint(tree: PyTree) -> str:
    """A hash of the data's content."""
    digest = hashlib.blake2b(digest_size=16)
    for leaf in jax.tree.leaves(tree):
        array = np.asarray(leaf, order="C")
        digest.update(str((array.shape, array.dtype)).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
