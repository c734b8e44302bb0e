"""Changes to a file: drawn by a generator, written as JSON, made by ``applied``.

*Damage* changes bytes, as disks and networks do. *Edits* change what the file says and make its
digest right again, so that the change gets past it.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from posterax.files import container

DAMAGE = ("flip", "cut", "append", "repeat", "zeros", "table")
# values that no setting is made for; a marker stands for what would be long
STRANGE: list[Any] = [
    None, True, False, -1, 0, 1, 3, 1.5, -2.5, 1e30, float("nan"), float("inf"), 10**9, 2**31,
    2**62, 10**30, -(10**9), "", "a", "__class__", "os.system", "../../etc/passwd", "\u0000",
    "é\n\u202e\u001b[31m", {"$repeat": ["x", 10**5]}, "O", "<U999999999", "float32", [], {}, [[]],
    [1, 2], [-1], [10**9, 10**9], [2**62], {"$repeat": [[1], 5000]}, ["a"], [None], {"value": 1},
    {"value": None}, {"array": "mu"}, {"parameters": "rho"}, {"dict": {}}, {"$nested": 80},
    {"name": "os.system", "arguments": {}}, {"value": 10**9}, {"list": [], "tuple": True},
]  # fmt: skip
TEXTS: list[Any] = [
    {"$nested": 10**5}, "null", "[]", "{}", '{"format": 1}', '{"format": 1, "agent": {}}',
    '{"format": 1, "estimator": {}}', '{"format": 1, "model": null}', {"$repeat": ["[],", 10**6]},
]  # fmt: skip
TABLES: list[dict[str, Any]] = [
    {"shape": [2**62]}, {"shape": [2**31, 2**31, 2**31]}, {"shape": [-1]}, {"shape": [0, 10**18]},
    {"data_offsets": [0, 2**62]}, {"data_offsets": [2**62, 2**63]}, {"data_offsets": [9, 1]},
    {"dtype": "O"}, {"dtype": "F8_E5M2"}, {"dtype": "C64"}, {"shape": None},
]  # fmt: skip
ARRAYS = (
    "nan", "one nan", "inf", "-inf", "half", "double", "int32", "bool", "ravel", "axis",
    "last axis", "transpose", "empty", "shorter", "thrice", "zeros by seven", "negative", "other",
    "swap", "gone", "renamed", "twice",
)  # fmt: skip


def drawn(path: Path, rng: np.random.Generator) -> list[Any]:
    """A change to this file: what is done, and with what."""
    arrays, header = parts_of(path)
    kind = rng.random()
    if header is None or kind < 0.25:
        return _damage(path.stat().st_size, arrays is not None, rng)
    if kind < 0.55 and arrays:
        one, other = rng.integers(len(arrays), size=2).tolist()
        return ["array", sorted(arrays)[one], ARRAYS[rng.integers(len(ARRAYS))], other]
    if kind < 0.6:
        return ["text", TEXTS[rng.integers(len(TEXTS))]]
    return ["header", *edit_of(header, rng)]


def _damage(size: int, tensors: bool, rng: np.random.Generator) -> list[Any]:
    places = rng.integers(size, size=3).tolist()
    match DAMAGE[rng.integers(len(DAMAGE) - (not tensors))]:
        case "flip":
            return ["flip", [[place, int(rng.integers(8))] for place in places[rng.integers(3) :]]]
        case "repeat":
            return ["repeat", *sorted(places[:2])]
        case "append":
            return ["append", rng.bytes(int(rng.integers(1, 60))).hex()]
        case "table":
            return ["table", places[0], TABLES[rng.integers(len(TABLES))]]
        case other:
            return [other, places[0]]


def edit_of(tree: Any, rng: np.random.Generator) -> list[Any]:
    """A change to JSON: the way to a place, what is done there, and a value."""
    way: list[Any] = []
    while isinstance(tree, dict | list) and tree and (not way or rng.random() < 0.85):
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        way.append(keys[rng.integers(len(keys))])
        tree = tree[way[-1]]
    does = ("set", "set", "set", "set", "delete", "rename", "add", "wrap", "write")
    return [way, does[rng.integers(len(does))], STRANGE[rng.integers(len(STRANGE))]]


def parts_of(path: Path) -> tuple[dict[str, np.ndarray] | None, Any]:
    """Arrays and header of a file of posterax, or of JSON alone; else nothing."""
    try:
        return container.read(path)
    except ValueError:
        pass
    try:
        return None, json.loads(path.read_text())
    except ValueError:
        return None, None


def applied(path: Path, change: list[Any]) -> bytes:
    """The content of the file after a change."""
    what, *rest = change
    if what in DAMAGE:
        return _damaged(path.read_bytes(), what, rest)
    arrays, header = parts_of(path)
    if what == "text":
        text = unfolded(rest[0])
        text = text if isinstance(text, str) else json.dumps(text)
        return text.encode() if arrays is None else signed(arrays, text)
    if what == "header":
        header = edited(header, *rest)
    elif what == "header of":
        header = parts_of(Path(rest[0]))[1]
    else:
        assert arrays is not None
        arrays = _array_changed(arrays, *rest)
    text = json.dumps(header)
    return text.encode() if arrays is None else signed(arrays, text)


def unsound(path: Path, change: list[Any]) -> bool:
    """Whether a change puts NaN or infinities where there were numbers that predictions are of."""
    if change[0] != "array" or change[2] not in ("nan", "one nan", "inf", "-inf"):
        return False
    arrays, _ = parts_of(path)
    name = name_of(arrays or {}, change[1])
    array = (arrays or {}).get(name, np.zeros(0))
    tells = ("history/", "report", "array/stats", "array/khat", "array/path")
    logarithm = name == "array/stats.log_weight"  # of which −∞ is that of 0
    of_the_course = name.startswith(tells) and (not logarithm or change[2] == "-inf")
    return not of_the_course and array.dtype.kind == "f" and array.size > 0


def name_of(arrays: dict[str, np.ndarray], name: str) -> str:
    """The name of an array; ``$0`` is the first in a file of floating point numbers."""
    floats = [n for n in sorted(arrays) if arrays[n].dtype.kind == "f"]
    return floats[int(name[1:])] if name.startswith("$") else name


def signed(arrays: dict[str, np.ndarray], text: str) -> bytes:
    """A file whose digest is that of its content."""
    return save(arrays, {"posterax": text, "digest": container._digest(text, arrays)})


def unfolded(value: Any) -> Any:
    """A value, with what a marker stands for."""
    if isinstance(value, dict) and "$repeat" in value:
        return value["$repeat"][0] * value["$repeat"][1]
    if isinstance(value, dict) and "$nested" in value:
        depth = value["$nested"]
        text = "[" * depth + "]" * depth
        return text if depth > 500 else json.loads(text)
    return value


def edited(tree: Any, way: list[Any], does: str, value: Any) -> Any:
    """JSON after one change."""
    value = unfolded(value)
    if not way:
        return value
    node = tree
    for key in way[:-1]:
        node = node[key]
    last = way[-1]
    if does == "delete":
        del node[last]
    elif does == "rename" and isinstance(node, dict):
        node[str(value)[:200]] = node.pop(last)
    elif does == "add" and isinstance(node, dict):
        node[f"{last}_"] = value
    elif does == "wrap":
        node[last] = [node[last]]
    elif does == "write":
        node[last] = str(node[last])
    else:
        node[last] = value
    return tree


def _damaged(content: bytes, what: str, rest: list[Any]) -> bytes:
    size = len(content)
    match what:
        case "flip":
            found = bytearray(content)
            for place, bit in rest[0]:
                found[place % size] ^= 1 << bit
            return bytes(found)
        case "cut":
            return content[: rest[0] % size]
        case "append":
            return content + bytes.fromhex(rest[0])
        case "repeat":
            return content[: rest[1]] + content[rest[0] :]
        case "zeros":
            return content[: rest[0] % size] + bytes(size - rest[0] % size)
    length = int.from_bytes(content[:8], "little")  # safetensors' own table of arrays
    table, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    names = [name for name in table if name != "__metadata__"]
    if names:
        table[names[rest[0] % len(names)]].update(rest[1])
    text = json.dumps(table).encode()
    return len(text).to_bytes(8, "little") + text + data


def _array_changed(
    arrays: dict[str, np.ndarray], one: str, how: str, place: int
) -> dict[str, np.ndarray]:
    one = name_of(arrays, one)
    other = sorted(arrays)[place % len(arrays)]
    array = arrays[one]
    numbers = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}
    if how in ("gone", "renamed"):
        rest = {name: a for name, a in arrays.items() if name != one}
        return rest if how == "gone" else rest | {one[:-1]: array}
    if how in ("other", "swap"):
        return arrays | {one: arrays[other]} | ({other: array} if how == "swap" else {})
    if how == "twice":
        return arrays | {f"{one}/more": array}
    if array.dtype.kind != "f" and how in (*numbers, "one nan"):
        array = array.astype(np.float32)
    if how in numbers:
        return arrays | {one: np.full_like(array, numbers[how])}
    if how == "one nan":
        array = array.copy()
        array.reshape(-1)[-1:] = np.nan
        return arrays | {one: array}
    with np.errstate(all="ignore"):
        return arrays | {one: _shaped(array, how)}


def _shaped(array: np.ndarray, how: str) -> np.ndarray:
    types = {"half": np.float16, "double": np.float64, "int32": np.int32, "bool": np.bool_}
    if how in types:
        return array.astype(types[how])
    changes = {
        "ravel": array.ravel,
        "axis": lambda: array[None],
        "last axis": lambda: array[..., None],
        "transpose": lambda: np.ascontiguousarray(array.T),
        "empty": lambda: array[:0] if array.ndim else array,
        "shorter": lambda: array[:-1] if array.ndim else array,
        "thrice": lambda: np.repeat(array, 3, axis=0) if array.ndim else array,
        "zeros by seven": lambda: np.zeros((0, 7), np.float32),
        "negative": lambda: array if array.dtype.kind in "bu" else -array,
    }
    return np.asarray(changes[how]())
