"""What an object is, as a hash that another process finds again: numbers, settings, and code.

A function is its code with its defaults and what it closes over; of a function that no installed
package holds, also the globals it reads. What has no content to look at is refused, unless it says
what it is in an attribute ``fit_identity``.
"""

import dataclasses
import dis
import enum
import functools
import hashlib
import logging
import sys
import types
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import jax
import numpy as np
from numpyro.distributions import Distribution

from .tree import is_key

MOST = 100_000  # objects that are looked at
NAME = "fit_identity"


class Unidentified(TypeError):
    """An object of which nobody can say whether another one is the same."""


def identify(value: object, name: str = "it") -> str:
    """A hash of all that an object is.

    Args:
        value: numbers, arrays, settings, functions, networks, or any tree of them.
        name: what it is called, for errors.

    Example:
        >>> from posterax._util.identity import identify
        >>> scaled = lambda by: lambda x: by * x
        >>> identify(scaled(2.0)) == identify(scaled(2.0))
        True
        >>> identify(scaled(2.0)) == identify(scaled(3.0))
        False
    """
    return "#" + _Walk().digest(value, name).hex()


def described(value: object, name: str = "it") -> Any:
    """The same by the names of its fields, so that a difference can be told: plain values as they
    are, all else as hashes.

    Example:
        >>> import posterax as px
        >>> from posterax._util.identity import described
        >>> described(px.priors.Gaussian(2.0))
        {'': 'Gaussian', 'scale': 2.0, 'loc': 0.0, 'fan_in': False}
    """
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return _shown(value, name)
    fields = {"": type(value).__qualname__}
    for field in dataclasses.fields(value):
        inside = getattr(value, field.name, None)
        fields[field.name] = _shown(inside, f"{name}.{field.name}")
    own = not _installed(type(value).__module__)
    return fields | ({"code": identify(type(value), name)} if own else {})


def _shown(value: Any, name: str) -> Any:
    """A plain value as JSON has it, or a hash."""
    if isinstance(value, jax.Array | np.ndarray | np.generic) and value.ndim == 0:
        value = value if is_key(value) else value.item()
    if isinstance(value, bool | int | str | None):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else repr(value)
    return identify(value, name)


class _Walk:
    """One look at an object and all that it holds."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[object, bytes]] = {}  # the object too: its id stays its own
        self.within: set[int] = set()

    def digest(self, value: Any, name: str) -> bytes:
        """The hash of one object."""
        if isinstance(value, bool | int | float | complex | str | bytes | None):
            return _hash(type(value).__name__.encode(), repr(value).encode())
        if id(value) in self.known:
            return self.known[id(value)][1]
        if id(value) in self.within:
            return b"the same again"
        if len(self.known) > MOST:
            raise Unidentified(_refusal(name, value, "holds too much to look at"))
        self.within.add(id(value))
        try:
            found = _hash(*self.parts(value, name))
        finally:
            self.within.discard(id(value))
        self.known[id(value)] = value, found
        return found

    def all(self, values: Any, name: str) -> Iterator[bytes]:
        """The hashes of named values, with their names."""
        for key, value in values:
            yield repr(key).encode()
            yield self.digest(value, f"{name}.{key}")

    def parts(self, value: Any, name: str) -> Iterator[bytes]:
        """What an object consists of."""
        said = None if isinstance(value, type) else getattr(value, NAME, None)
        if isinstance(said, str):
            return iter([b"said", said.encode()])
        if (several := _several(value)) is not None:
            return self.all(several, name)
        looks: list[tuple[Any, Any]] = [
            (jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct, self.numbers),
            (type, self.class_),
            (types.FunctionType, self.function),
            (types.CodeType, self.code),
            (object, self.object),
        ]
        look = next(look for kinds, look in looks if isinstance(value, kinds))
        parts: Iterator[bytes] = look(value, name)
        return parts

    def numbers(self, value: Any, name: str) -> Iterator[bytes]:
        """An array: its shape, type and content; by shape and type alone where it has no more."""
        if isinstance(value, jax.ShapeDtypeStruct):
            yield repr((value.shape, str(value.dtype))).encode()
            return
        key = is_key(value)
        array = np.asarray(jax.random.key_data(value) if key else value, order="C")
        yield repr((array.shape, str(array.dtype), key)).encode()
        if array.dtype.hasobject:
            yield from self.all(enumerate(array.ravel().tolist()), name)
        else:
            yield array.reshape(-1).view(np.uint8).tobytes()

    def function(self, value: Any, name: str) -> Iterator[bytes]:
        """Code, defaults, what it closes over and, of a user's own, the globals it reads."""
        yield value.__qualname__.rsplit(".", 1)[-1].encode()
        yield self.digest(value.__code__, name)
        yield self.digest(value.__defaults__, name)
        yield self.digest(value.__kwdefaults__, name)
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        yield from self.all(((free, _content(cell)) for free, cell in cells), name)
        if not _installed(value.__module__):
            yield from self.all(_globals(value), name)

    def code(self, value: types.CodeType, name: str) -> Iterator[bytes]:
        """What is run; not where it stands in a file."""
        yield value.co_code
        yield repr((value.co_names, value.co_varnames, value.co_freevars)).encode()
        # a docstring is a constant too, and changes nothing, but cannot be told from others
        yield from self.all(enumerate(value.co_consts), name)

    def class_(self, value: type, name: str) -> Iterator[bytes]:
        """An installed class by its name; a user's own by its code, in a script or a module."""
        if _installed(value.__module__):
            yield f"{value.__module__}.{value.__qualname__}".encode()
        else:
            yield value.__qualname__.encode()
            yield from self.all(_members(value), name)
            yield from self.all(enumerate(value.__bases__), name)

    def object(self, value: Any, name: str) -> Iterator[bytes]:
        """Any other object: its class, and its fields or what it wraps."""
        yield self.digest(type(value), name)
        if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            yield from self.all(((n, getattr(value, n, None)) for n in names), name)
        elif (own := getattr(value, "__wrapped__", None)) is not None:  # jit, a cache
            yield self.digest(own, name)
        elif isinstance(value, types.BuiltinFunctionType | np.ufunc):
            yield value.__name__.encode()
            yield self.digest(getattr(value, "__self__", None), name)
        elif (children := _registered(value)) is not None:
            yield from self.all(children, name)
        elif hasattr(type(value), "__array__"):  # a data frame, a series, an index
            yield from self.all(_table(value), name)
        elif (fields := _fields(value)) or hasattr(value, "__dict__"):
            yield from self.all(sorted(fields.items()), name)
        elif " at 0x" not in (text := repr(value)).lower():  # else there is more than it shows
            yield text.encode()
        else:
            raise Unidentified(_refusal(name, value, "cannot be compared with another one"))


def _hash(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def _refusal(name: str, value: object, why: str) -> str:
    return (
        f"checkpoint: {name} is a {type(value).__name__}, which {why}, so that the checkpoint of "
        f"another fit might be taken for this one's; give it, or the function that uses it, an "
        f"attribute {NAME}, a text that names it"
    )


def _several(value: Any) -> list[tuple[Any, Any]] | None:
    """The content of Python's own containers and wrappers, with what kind it is of."""
    inside: list[tuple[Any, Any]]
    match value:
        case tuple() | list():
            inside = [*enumerate(value)]
        case dict() | types.MappingProxyType():
            inside = sorted(value.items(), key=lambda item: repr(item[0]))
        case set() | frozenset():
            inside = [*enumerate(sorted(value, key=repr))]
        case functools.partial():
            inside = [("of", value.func), ("with", (value.args, value.keywords))]
        case types.MethodType():
            inside = [("of", value.__func__), ("self", value.__self__)]
        case staticmethod() | classmethod():
            inside = [("of", value.__func__)]
        case property():
            inside = [("get", value.fget)]
        case jax.tree_util.PyTreeDef():
            inside = [("node", value.node_data()), *enumerate(value.children())]
        case types.ModuleType():
            inside = [("name", value.__name__)]
        case logging.Logger():  # it remembers what was logged, which changes nothing
            inside = [("name", value.name)]
        case np.dtype() | enum.Enum() | PurePath() | range() | slice() | types.EllipsisType():
            inside = [("repr", repr(value))]
        case _:
            return None
    return [("", type(value)), *inside]


def _registered(value: Any) -> list[tuple[Any, Any]] | None:
    """The children of a node that JAX knows, and what else it is made of."""
    if isinstance(value, Distribution):  # its children come in the order of a set
        return None
    try:
        flat = jax.tree_util.default_registry.flatten_one_level(value)
    except ValueError:
        return None
    return None if flat is None else [("and", flat[1]), *enumerate(flat[0])]


def _table(value: Any) -> Iterator[tuple[str, Any]]:
    """The numbers of a table and the names of its rows and columns."""
    yield "values", np.asarray(value)
    yield "name", getattr(value, "name", None)
    for labels in ("columns", "index"):
        if hasattr(getattr(value, labels, None), "__array__"):
            yield labels, np.asarray(getattr(value, labels))


def _fields(value: Any) -> dict[str, Any]:
    """What an object keeps in its attributes."""
    named = [getattr(kind, "__slots__", ()) for kind in type(value).__mro__]
    slots = [slot for names in named for slot in ([names] if isinstance(names, str) else names)]
    kept = {slot: getattr(value, slot) for slot in slots if hasattr(value, slot)}
    kept = {slot: held for slot, held in kept.items() if slot not in ("__dict__", "__weakref__")}
    return kept | getattr(value, "__dict__", {})


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled: a function that was never completed
        return None


def _members(value: type) -> Iterator[tuple[str, Any]]:
    """The code of a class, and its constants."""
    for name, member in sorted(vars(value).items()):
        if name in ("__doc__", "__module__", "__qualname__", "__firstlineno__"):
            continue
        member = getattr(member, "method", member)  # as Equinox wraps it
        code = types.FunctionType | staticmethod | classmethod | property
        if isinstance(member, code | bool | int | float | str | jax.Array | np.ndarray):
            yield name, member


def _globals(function: Any) -> Iterator[tuple[str, Any]]:
    """The globals that a function reads, its inner functions included."""
    codes, names = [function.__code__], set()
    while codes:
        code = codes.pop()
        codes += [const for const in code.co_consts if isinstance(const, types.CodeType)]
        reads = (i for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
        names |= {instruction.argval for instruction in reads}
    for name in sorted(names):
        if name in function.__globals__:
            yield name, function.__globals__[name]


@functools.cache
def _installed(module: str | None) -> bool:
    """Whether code belongs to Python, to this package or to another that is installed.

    Its version says what it is.
    """
    top = (module or "").partition(".")[0]
    if top == "__main__" or not top:
        return False
    if top in sys.stdlib_module_names or top == "posterax":
        return True
    found = sys.modules.get(top)
    file = getattr(found, "__file__", None) or next(iter(getattr(found, "__path__", [])), "")
    return any(part in ("site-packages", "dist-packages") for part in PurePath(file).parts)
