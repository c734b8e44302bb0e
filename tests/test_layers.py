"""Imports go one way: the graph of modules, late imports included, against the order of rooms."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "posterax"

# a room may import from rooms before it, and from its own
ORDER = [
    {"_version", "_methods", "errors"},
    {"_util"},
    {"data", "augment", "optim"},
    {"program"},
    {"networks"},
    {"priors"},
    {"likelihoods"},
    {"model"},
    {"predictive"},
    {"posteriors"},
    {"diagnostics", "infer"},
    {"files"},
    {"fitting"},
    {"callbacks", "gradients"},
    {"metrics", "information"},
    {"recalibrate", "selection", "deciding", "pruning"},
    {"active", "tables"},
    {"bandits"},
    {"plot"},
    {"demo", "report"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}

# the few that go the other way, and why; all are imported late
ALLOWED = {
    ("posteriors.base", "diagnostics"): "posterior.diagnose() is a method that users expect there",
    ("posteriors.base", "files"): "posterior.save() is a method that users expect there",
    ("posteriors.draws", "diagnostics"): "a mean over chains has its error by effective draws",
    ("files.saved", "tables"): "px.load() reads estimators too",
}


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name below ``posterax``."""
    names = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def imports(name: str, path: Path) -> set[str]:
    """What a module imports from the package, wherever the import stands; types aside."""
    tree = ast.parse(path.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    package = [part for part in package if part]
    targets = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or id(node) in for_types or not node.level:
            continue
        above = package[: len(package) - node.level + 1]
        base = ".".join([*above, *([node.module] if node.module else [])])
        targets |= {f"{base}.{alias.name}".strip(".") for alias in node.names}
    names = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    if "import_module" in path.read_text():  # by its name, as a string
        targets |= {n.removeprefix("posterax.") for n in names if str(n).startswith("posterax.")}
    return targets


def room(name: str) -> str:
    return name.split(".", maxsplit=1)[0]


def against_the_order() -> dict[tuple[str, str], str]:
    """Edges from a module to a later room."""
    wrong = {}
    for name, path in modules().items():
        if name == "":  # the package itself, whose names are imported when they are asked for
            continue
        for target in imports(name, path):
            here, there = room(name), room(target)
            if there in RANK and here != there and RANK[there] >= RANK[here]:
                wrong[name, there] = target
    return wrong


def test_every_room_has_a_place_in_the_order():
    assert {room(name) for name in modules() if name} == set(RANK)


def test_no_import_goes_against_the_order():
    wrong = against_the_order()
    new = {edge: target for edge, target in wrong.items() if edge not in ALLOWED}
    assert not new, new


def test_no_exception_is_left_over():
    assert set(ALLOWED) <= set(against_the_order())


def test_few_modules_at_the_root():
    assert len(list(PACKAGE.glob("*.py"))) <= 14


def test_functions_are_short():
    """At most 60 lines, its docstring aside; ruff holds their complexity."""
    long = []
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                told = ast.get_docstring(node, clean=False)
                first = node.body[1] if told is not None and len(node.body) > 1 else node.body[0]
                head = node.body[0].lineno - node.lineno
                lines = head + node.end_lineno - first.lineno + 1
                long += [f"{name}.{node.name}: {lines}"] if lines > 60 else []
    assert not long, long


def test_the_contract_can_be_held_in_mind():
    """Members of ``Method`` and ``Phase`` together, besides ``model`` and ``plan``."""
    from posterax.infer.base import Method, Phase

    members = {
        name
        for kind in (Method, Phase)
        for name in [*vars(kind), *kind.__annotations__]
        if not name.startswith("_") and name not in ("model", "plan")
    }
    assert len(members) <= 18, sorted(members)
