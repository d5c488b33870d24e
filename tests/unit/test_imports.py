"""Imports point inward, between packages and between the folders of a package: two tables, held against the source.

Imports for type checking and imports inside functions count like any other.
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MAY_IMPORT = {
    "canvas": set[str](),
    "store": {"canvas"},
    "providers": {"canvas"},
    "components": {"canvas", "providers"},
    "scheduler": {"canvas", "store", "providers"},
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
    "pytest_easel": set[str](),
    "settings": set[str](),
    "telemetry": set[str](),
}
LAYERS = {
    "canvas": ("errors ids outcome run_warnings", "budget document state", "graph", "events validation", "routing"),
    "store": (
        "primitives tables",
        "files",
        "db",
        "knowledge maintenance mcp runs",
        "agents monitoring tenants",
    ),
    "providers": (
        "address_policy errors isolation rate_limits",
        "interfaces",
        "databases http mail ragflow sandboxes",
        "mcp models",
    ),
    "components": (
        "context documents produced_links text",
        "base browsing delegating_context",
        "recorded_steps",
        "tools",
        "nodes",
        "registry",
        "checks forms node_inputs plugins",
    ),
    "scheduler": (
        "metrics",
        "messaging",
        "coordinator health",
        "views",
        "callbacks",
        "bootstrap lifecycle",
        "schedules",
        "celery_startup sweeper",
        "sweep tasks",
    ),
    "knowledge": ("billing index names", "models", "bases memory", "memory_router retriever"),
    "worker": (
        "caches task_end threads",
        "leases services",
        "celery_requests context",
        "fastpath",
        "execution",
        "worker",
        "bootstrap node_task",
        "process",
        "tasks",
    ),
    "api": (
        "findings http",
        "events pages",
        "requests",
        "agents health visitors",
        "knowledge runs schedules system",
        "a2a callbacks mcp responses viewer webhooks",
        "app",
    ),
    "cli": ("shell", "models", "agents", "runs server", "cases", "admin conformance", "__main__"),
    "bench": ("compare fixtures measuring servers", "hops", "scripts"),
}
"""The folders and modules of each package, the innermost first. Each may import those of the layers before its own."""
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


def imported(source: str, package: Sequence[str]) -> Iterator[list[str]]:
    """Yield each import of a source as the parts of its absolute name; `package`: the source's own package."""
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            module = node.module.split(".") if node.module else []
            yield from ([*base, *module, alias.name] for alias in node.names)


def forbidden(path: str, source: str) -> set[str]:
    """Return what of ours a module imports and may not: packages, and folders or modules of its own package."""
    parts = Path(path).with_suffix("").parts
    package = parts[0]
    names = list(imported(source, parts[:-1]))
    allowed = MAY_IMPORT[package] | {package} | (LEAVES if path.startswith(READ_LEAVES) else set())
    outward = {name[0] for name in names} & OURS - allowed
    layers = {unit: number for number, layer in enumerate(LAYERS.get(package, ())) for unit in layer.split()}
    if len(parts) > 1 and parts[1] in layers:
        within = {name[1] for name in names if name[0] == package and len(name) > 1 and name[1] in layers}
        outward |= {f"{package}.{unit}" for unit in within - {parts[1]} if layers[unit] >= layers[parts[1]]}
    return outward


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


@pytest.mark.parametrize("package", LAYERS)
def test_every_folder_and_module_of_a_package_is_in_one_layer(package: str) -> None:
    listed = [unit for layer in LAYERS[package] for unit in layer.split()]
    found = {Path(path).with_suffix("").parts[1] for path in sources() if Path(path).parts[0] == package}

    assert sorted(listed) == sorted(found - {"__init__"})


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("canvas/state/run_state.py", "from canvas.routing import decide"),
        ("canvas/state/run_state.py", "from ..graph.canvas import Canvas"),
        ("canvas/events/explain.py", "import canvas.validation.findings"),
        ("worker/leases/leases.py", "if TYPE_CHECKING:\n    from worker.fastpath.continuation import Continuation"),
        ("api/http/errors.py", "from api.requests.auth import RequestPrincipal"),
        ("store/files/blobs.py", "def f():\n    from store.db.database import Database"),
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
        ("api/events/event_stream.py", "import telemetry"),
        ("cli/runs/runs.py", "from api.app import create_app"),
        ("bench/compare/comparison.py", "from cli.server.up import up"),
        ("bench/proxy.py", "from tests.faults.proxy import Proxy"),
        ("worker/execution/executor.py", "from settings import load"),
        ("components/nodes/llm/llm.py", "from tests.fakes import FakeContext"),
        ("store/db/database.py", "import embedded"),
    ],
)
def test_an_import_that_points_outward_is_found(path: str, source: str) -> None:
    assert forbidden(path, source)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("worker/process.py", "import settings, telemetry"),
        ("canvas/routing/decide.py", "from canvas.state import run_state\nfrom .ready import release"),
        ("api/runs/completions.py", "from api import findings\nfrom api.requests.auth import RequestPrincipal"),
        ("cli/admin/database.py", "from embedded import services\nfrom settings import load"),
        ("components/tools/web_search/tavily.py", "from . import base\nfrom components.context import NodeContext"),
        ("migrations/versions/0001_tenants.py", "from store.tables.runs import metadata"),
    ],
)
def test_an_import_that_points_inward_is_accepted(path: str, source: str) -> None:
    assert not forbidden(path, source)
