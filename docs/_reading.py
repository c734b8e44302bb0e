"""How the reference reads the source, beyond what Griffe (under mkdocstrings) does by itself.

- The fields of an Equinox module are the arguments of its class. Griffe runs no code, and of
  dataclasses it knows by their decorator, which ``eqx.Module`` does without.
- Docstrings have an ``Example:``, and Griffe knows code by ``Examples:``.
- They link ``[`px.prune`][posterax.pruning.prune]``, the function to Python and the file of
  that name to Griffe.

mkdocs.yml names this file among the extensions.
"""

import re

import griffe

EXAMPLE = re.compile(r"^( *)Example:$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\[posterax\.([\w.]+)\]")


class Reading(griffe.Extension):
    """Gives classes without an ``__init__`` one that takes their fields; mends docstrings."""

    def on_package(self, *, pkg: griffe.Module, **_) -> None:
        found = classes(pkg)
        bare = [cls for cls in found if "__init__" not in cls.all_members and is_module(cls)]
        for cls in bare:
            own = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
            given = griffe.Parameters(own, *map(parameter, fields(cls).values()))
            cls.set_member("__init__", griffe.Function("__init__", parameters=given, parent=cls))
        for text in docstrings(pkg):
            text.value = EXAMPLE.sub(r"\1Examples:", text.value)
            text.value = LINK.sub(lambda link: linked(pkg, *link.groups()), text.value)


def docstrings(item: griffe.Object) -> list[griffe.Docstring]:
    own = [item.docstring] if item.docstring else []
    inner = [member for member in item.members.values() if not member.is_alias]
    return own + [text for member in inner for text in docstrings(member)]


def linked(pkg: griffe.Module, words: str, path: str) -> str:
    name = path.rsplit(".", 1)[-1]
    found = pkg[path]
    inside = found.is_module and name in found.members
    return f"[{words}][posterax.{path}{'.' + name if inside else ''}]"


def parameter(field: griffe.Attribute) -> griffe.Parameter:
    return griffe.Parameter(
        field.name,
        annotation=field.annotation,
        default=default(field.value),
        kind=griffe.ParameterKind.positional_or_keyword,
    )


def classes(module: griffe.Module) -> list[griffe.Class]:
    found = []
    for member in list(module.members.values()):
        if member.is_alias:
            continue
        if member.is_module:
            found += classes(member)
        elif member.is_class:
            found.append(member)
    return found


def is_module(cls: griffe.Class) -> bool:
    """Whether its ``__init__`` is made of its fields: by Equinox, or as a named tuple."""
    bases = {str(base) for kind in (cls, *cls.mro()) for base in kind.bases}
    return bool(bases & {"eqx.Module", "NamedTuple"})


def fields(cls: griffe.Class) -> dict[str, griffe.Attribute]:
    """Annotated names of the class and those it inherits from, oldest first, as dataclasses do."""
    found: dict[str, griffe.Attribute] = {}
    for kind in (*reversed(cls.mro()), cls):
        for name, member in kind.members.items():
            if member.is_alias or not member.is_attribute or member.annotation is None:
                continue
            if "instance-attribute" in member.labels:  # a ClassVar and a property are none
                found[name] = member
    return found


def default(value):
    """What stands for a field that is left out: ``eqx.field(default=…)`` has it inside."""
    text = str(value) if value is not None else ""
    if not text.startswith(("eqx.field(", "field(")):
        return value
    for argument in value.arguments:
        if getattr(argument, "name", None) == "default":
            return argument.value
        if getattr(argument, "name", None) == "default_factory":
            return "…"
    return None
