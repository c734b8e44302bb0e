"""A method as plain data: what it is called and how it was set, for files and reports."""

import dataclasses
import math
from typing import Any

import equinox as eqx
import numpy as np

from .base import Method


def describe_method(method: Method) -> dict[str, Any]:
    """Name and arguments as JSON has them; what JSON has no value for is text, as in its ``repr``.

    Example:
        >>> import posterax as px
        >>> from posterax.infer.describe import describe_method
        >>> described = describe_method(px.DeepEnsemble(inside=px.BayesByBackprop(temperature=0.5)))
        >>> described["name"], described["arguments"]["members"]
        ('DeepEnsemble', 5)
        >>> described["arguments"]["inside"]["arguments"]["temperature"]
        0.5
    """
    arguments = {
        field.name: _plain(getattr(method, field.name))
        for field in dataclasses.fields(method)
        if field.init
    }
    return {"name": type(method).__name__, "arguments": arguments}


def _plain(value: object) -> Any:
    if isinstance(value, Method):
        return describe_method(value)
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in (tuple, list):  # a named tuple, as an optimiser is, is no list
        return [_plain(item) for item in value]  # type: ignore[attr-defined]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return eqx.tree_pformat(value, width=10**6)  # as repr, without addresses in memory
