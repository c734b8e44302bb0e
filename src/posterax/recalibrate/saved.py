"""Recalibrations from their files: JSON, read by name, so that loading runs no code."""

import json
from pathlib import Path
from typing import Any

from ..errors import CheckpointError
from .base import FORMAT, Recalibration
from .conformal import ConformalInterval
from .conformal_sets import ConformalSet
from .isotonic import Isotonic
from .spread import Spread
from .temperature import Temperature

_KINDS: dict[str, type[Recalibration]] = {
    kind.__name__: kind for kind in (Temperature, Spread, Isotonic, ConformalInterval, ConformalSet)
}


def load(path: str | Path) -> Any:
    """The recalibration that ``save`` wrote.

    Example:
        >>> import pathlib, tempfile
        >>> import posterax as px
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "temperature.json"
        >>> temperature = px.recalibrate.Temperature(1.5, n=100, before=0.4, after=0.3)
        >>> temperature.save(file)
        >>> px.recalibrate.load(file) == temperature
        True
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: is no JSON file, so no recalibration ({error})") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointError(
            f"{path}: is no recalibration that this version of posterax wrote (its format should "
            f"be {FORMAT!r}); px.load reads posteriors and estimators"
        )
    kind = _KINDS.get(str(content.get("kind")))
    if kind is None:
        raise CheckpointError(f"{path}: holds a recalibration of unknown kind {content['kind']!r}")
    try:
        return kind(**content["values"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CheckpointError(f"{path}: is damaged, {kind.__name__} says: {error}") from None
