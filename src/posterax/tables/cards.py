"""The card of an estimator's file: facts about its fit that commands and reports show."""

from typing import Any

from ..errors import CheckpointError
from ..files.bounds import field
from ..files.container import shortened

# what those who read a card take its entries for; others are shown as they are
_KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(
        ("scores", "baseline", "chance", "settings", "held_out", "versions", "verdict"), (dict,)
    ),
    "drift": (int, float, type(None)),
    "columns": (list,),
    "models": (list,),
    "target": (str,),
    "task": (str,),
    "data": (dict, str),
    "command": (str, list),
}


def check_card(card: Any) -> dict[str, Any]:
    """The card of a file, refused where an entry is not what it is taken for.

    Example:
        >>> from posterax.tables.cards import check_card
        >>> check_card({"scores": {"nll": [0.5, 0.4, 0.6]}})["scores"]["nll"]
        [0.5, 0.4, 0.6]
        >>> check_card({"scores": 3})
        Traceback (most recent call last):
        posterax.errors.CheckpointError: 'scores' in its card must be dict, got 3
    """
    if not isinstance(card, dict):
        raise CheckpointError(f"its card must be a dict, got {shortened(card)}")
    for name in _KINDS.keys() & card.keys():
        field(card, name, *_KINDS[name], of="card")
    for name, values in card.get("scores", {}).items():
        if not (isinstance(values, list) and len(values) == 3 and all(map(_number, values))):
            raise CheckpointError(f"the score {shortened(name)!r} in its card must be 3 numbers")
    for entry in ("baseline", "chance"):
        for name, value in card.get(entry, {}).items():
            if not _number(value):
                raise CheckpointError(f"the {entry} of {shortened(name)!r} must be a number")
    for column in card.get("columns", []):
        field(column, "name", str, of="card's columns")
    if "verdict" in card:
        _check_verdict(card["verdict"])
    field({"weight": None} | card.get("settings", {}), "weight", str, type(None), of="card")
    return card


def _check_verdict(verdict: dict[str, Any]) -> None:
    """A level, its words, and the reasons."""
    field(verdict, "words", str, of="card's verdict")
    if field(verdict, "level", str, of="card's verdict") not in ("good", "care", "bad"):
        raise CheckpointError(
            "the level of the verdict in its card must be good, care or bad, got "
            f"{shortened(verdict['level'])}"
        )
    reasons = field(verdict, "reasons", list, of="card's verdict")
    if not all(isinstance(reason, str) for reason in reasons):
        raise CheckpointError("the reasons of the verdict in its card must be text")


def _number(value: Any) -> bool:
    """Whether it is a number; JSON has null for what is not finite."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
