"""Imports point inward: the table of the architecture, held against the source.

Imports for type checking and imports inside functions count like any other.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MAY_IMPORT = {
    "canvas": set[str](),
    "store": {"canvas"},
    "providers": {"canvas"},
    "components": {"canvas", "providers"},
    "scheduler": {"canvas", "store"},
    "knowledge": {"canvas", "store", "providers", "components"},
    "worker": {"canvas", "store", "providers", "components", "knowledge", "scheduler"},
    "api": {"canvas", "store", "providers", "components", "knowledge", "scheduler"},
    "cli": {
        "canvas",
        "store",
        "providers",
        "components",
        "knowledge",
        "scheduler",
        "embedded",
        "local_engine",
        "bench",
    },
    "bench": {
        "canvas",
        "store",
        "providers",
        "components",
        "knowledge",
        "scheduler",
        "worker",
        "embedded",
        "local_engine",
    },
    "local_engine": {"canvas", "store", "providers", "components", "scheduler", "worker"},
    "migrations": {"store"},
    "embedded": {"canvas"},
    "settings": set[str](),
    "telemetry": set[str](),
}
LEAVES = {"settings", "telemetry"}
READ_LEAVES = (
    "worker/process.py",
    "worker/bootstrap.py",
    "scheduler/tasks.py",
    "scheduler/sweeper/sweeper.py",
    "api/app.py",
    "bench/",
    "cli/",
    "local_engine.py",
    "migrations/env.py",
)
OURS = set(MAY_IMPORT) | {"tests"}


def sources() -> list[str]:
    """Every module of ours, as a path from the root; tests may import what they test."""
    found = [path for name in MAY_IMPORT for path in (*ROOT.glob(f"{name}.py"), *(ROOT / name).rglob("*.py"))]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def statements(block: ast.AST) -> Iterator[ast.AST]:
    """All statements of a block, however deep: no expression holds an import."""
    for part in ("body", "orelse", "handlers", "finalbody", "cases"):
        for each in getattr(block, part, ()):
            yield each
            yield from statements(each)


def imported(source: str) -> Iterator[str]:
    """Top-level names that a source imports absolutely; a relative import stays in its package."""
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def forbidden(path: str, source: str) -> set[str]:
    """What of ours a module imports and may not."""
    package = Path(path).parts[0].removesuffix(".py")
    allowed = MAY_IMPORT[package] | {package} | (LEAVES if path.startswith(READ_LEAVES) else set())
    return set(imported(source)) & OURS - allowed


def test_imports_point_inward() -> None:
    outward = {path: found for path in sources() if (found := forbidden(path, (ROOT / path).read_text("utf-8")))}

    assert outward == {}


def test_every_module_of_ours_is_in_the_table() -> None:
    top = {
        path.parent.name if path.name == "__init__.py" else path.stem
        for path in (*ROOT.glob("*/__init__.py"), *ROOT.glob("*.py"))
    }

    assert top - {"tests"} <= set(MAY_IMPORT)
    assert {"canvas", "store", "providers", "components"} <= {Path(path).parts[0] for path in sources()}


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("canvas/routing/decide.py", "import store"),
        ("canvas/routing/decide.py", "from settings import load"),
        ("store/runs/run_rows.py", "from components.base import Params"),
        ("scheduler/coordinator/coordinator.py", "def f():\n    import components.registry"),
        ("scheduler/coordinator/coordinator.py", "if TYPE_CHECKING:\n    from worker import execution"),
        ("scheduler/coordinator/coordinator.py", "try:\n    import json\nexcept ImportError:\n    import worker"),
        (
            "scheduler/coordinator/coordinator.py",
            "class C:\n    async def f():\n        with a as b:\n            import worker",
        ),
        (
            "scheduler/coordinator/coordinator.py",
            "match a:\n    case 1:\n        pass\n    case _:\n        import worker",
        ),
        ("api/app.py", "from cli import runs"),
        ("api/app.py", "import worker.tasks"),
        ("api/runs/event_stream.py", "import telemetry"),
        ("cli/runs/runs.py", "from api.app import create_app"),
        ("bench/compare/comparison.py", "from cli.server.up import up"),
        ("bench/proxy.py", "from tests.faults.proxy import Proxy"),
        ("worker/executor.py", "from settings import load"),
        ("components/nodes/llm/llm.py", "from tests.fakes import FakeContext"),
        ("store/db/database.py", "import embedded"),
    ],
)
def test_an_import_that_points_outward_would_be_found(path: str, source: str) -> None:
    assert forbidden(path, source)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("worker/process.py", "import settings, telemetry"),
        ("cli/admin/database.py", "from embedded import services\nfrom settings import load"),
        ("components/tools/web_search/tavily.py", "from . import base\nfrom components.context import NodeContext"),
        ("migrations/versions/0001_tenants.py", "from store.tables.runs import metadata"),
    ],
)
def test_an_import_that_points_inward_is_none_of_its_business(path: str, source: str) -> None:
    assert not forbidden(path, source)
