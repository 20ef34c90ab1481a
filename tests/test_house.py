"""Imports go down only: each room of the house may use the rooms below it, and no other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "reef"

# Rooms from the ground up. Those on one floor may not use each other, except as `BESIDE` says.
FLOORS = [
    {"errors", "environment"},
    {"store", "data"},
    {"log", "manifest", "segment"},
    {"commit"},
    {"lsm"},
    {"documents", "keyvalue", "volumes", "cluster"},
    {"cli", "server", "spark", "sqlite"},
]
BESIDE = {("log", "segment"), ("manifest", "segment"), ("cli", "spark")}
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# The package itself is the front door: it shows the faces, and only doors come in by it.
FRONT = "reef"
FLOOR_OF[FRONT] = FLOOR_OF["documents"]


def room_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return FRONT if path.parent == SOURCE and first not in FLOOR_OF else first


def modules_imported(tree: ast.AST) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, name.name) for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            module = node.module or ""
            names = [f"{module}.{name.name}" for name in node.names]
            found += [(node.lineno, name) for name in (names if module == "reef" else [module])]
    return found


def may_import(importer: str, imported: str) -> bool:
    if importer == imported or (importer, imported) in BESIDE:
        return True
    below = FLOOR_OF[imported] < FLOOR_OF[importer]
    return below or (importer == FRONT and FLOOR_OF[imported] == FLOOR_OF[FRONT])


MODULES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down_only(path: Path) -> None:
    importer = room_of(path)
    assert importer in FLOOR_OF, f"{path} is in a room that has no floor"
    for line, module in modules_imported(ast.parse(path.read_text())):
        package, _, rest = module.partition(".")
        if package != "reef":
            continue
        first = rest.partition(".")[0]
        room = first if first in FLOOR_OF else FRONT
        assert may_import(importer, room), f"{path}:{line}: {importer} imports {module}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"


def test_the_order_is_what_the_design_says() -> None:
    assert may_import("cli", "documents")
    assert may_import("lsm", "store")
    assert may_import("lsm", "commit")
    assert may_import("commit", "manifest")
    assert not may_import("commit", "lsm")
    assert may_import("manifest", "segment")
    assert not may_import("segment", "manifest")
    assert not may_import("spark", "cli")
    assert not may_import("store", "data")
    assert not may_import("documents", "keyvalue")
    assert not may_import("lsm", "documents")
