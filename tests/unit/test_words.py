"""Names and texts use the words of docs/glossary.md: a retired word, a riddle or an ambiguous name fails here."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.test_imports import MAY_IMPORT

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = sorted(set(MAY_IMPORT) - {"migrations"})

RETIRED = frozenset(
    re.findall(
        r"\w+",
        """
    canaries canary deaf dialling door doubts eager ear echoes fold folded folds foresight gallery givens goodbye
    governor hear heard hearing hint hinted hints inbox joint keeping kept knock desk legwork letter letters nearness
    overdue patience patient paying piece pieces purse reach remembering said say says sealing shelf silence silent
    strike strikes struck suspicions taker taking tell telling tells told turning wanted wave ways
    """,
    )
)
RETIRED_PAIRS = frozenset({("ride", "along"), ("let", "go"), ("give", "back"), ("called", "off"), ("left", "behind"),
                           ("at", "hand"), ("stand", "in"), ("last", "chance"), ("working", "off"),
                           ("house", "keeping")})  # fmt: skip
ORDINARY = {  # words of the glossary's list that are retired in one sense only, with the sense that stays
    "echo": "the built-in model",
    "look": "an ordinary verb",
    "place": "where a file or a server is",
    "turn": "an exchange of a conversation",
    "gate": "a part of test fixtures",
    "take": "an ordinary verb",
    "taken": "a participle: the rule about participles finds it",
    "given": "a participle",
    "asked": "a participle",
    "found": "a participle",
}
FORMER_METRICS = {"easel_fold_seconds", "easel_canary_seconds"}  # served for one more release beside their new names
FORMER_TABLES: Mapping[str, str] = {"turns": "message_streams", "canaries": "queue_probes"}
COLUMN_WORDS = RETIRED | {"asked", "called", "engine", "keep", "pass", "place", "turn"}

PARTICIPLES = frozenset(
    re.findall(
        r"\w+",
        """
    begun built chosen drawn found given gone grown held kept known left made met said seen sent shown sought spent
    taken thrown told torn wound written
    """,
    )
)
NOT_PARTICIPLES = frozenset({"embed", "exceed", "feed", "need", "proceed", "seed", "shed", "speed", "succeed"})
PARTICIPLE_FUNCTIONS: Mapping[str, str] = {
    "worker/celery_requests.py::revoked": "overrides a method of Celery",
}  # "path::name": why no verb says it better

RIDDLES: Mapping[str, re.Pattern[str]] = {
    "is no X": re.compile(r"(?<!\bthere )\bis no (?!longer\b|more\b|such\b)[a-z]", re.IGNORECASE),
    "somebody, nobody, whoever": re.compile(r"(?<!`)\b(?:somebody|nobody|whoever|whose turn)\b(?!`)", re.IGNORECASE),
}
PROMPTS = ("prompts.py", "research_prompts.py")  # modules whose texts models read: other words, other answers

Offence = str
"""kind: path: name or text"""


def words_of(name: str) -> list[str]:
    """Split a name in snake case or camel case into lower-case words."""
    return [
        word.lower()
        for part in re.split(r"[_\W]+", name)
        for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", part)
    ]


def is_retired(name: str) -> bool:
    words = words_of(name)
    return bool(RETIRED & set(words)) or bool(RETIRED_PAIRS & set(pairwise(words)))


def is_participle(name: str) -> bool:
    words = words_of(name)
    return len(words) == 1 and words[0] not in NOT_PARTICIPLES and (words[0].endswith("ed") or words[0] in PARTICIPLES)


def documentation(tree: ast.AST) -> set[int]:
    """Return the ids of the nodes that are docstrings, which no user reads."""
    holders = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return {id(node.body[0].value) for node in ast.walk(tree)
            if isinstance(node, holders) and node.body and isinstance(node.body[0], ast.Expr)}  # fmt: skip


def literal(call: ast.Call) -> str | None:
    """Return the first argument of a call if it is a text in quotes."""
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def called(call: ast.Call) -> str:
    """Return the name of what is called: `info` for `log.info(...)`, `Counter` for `Counter(...)`."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def is_log_call(call: ast.Call) -> bool:
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and function.attr in {"debug", "info", "warning", "error", "exception", "critical"}
        and isinstance(function.value, ast.Name)
        and function.value.id in {"log", "logger", "_log"}
    )


def tables(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the definition of every table of a module of store/tables."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call) and called(node) == "Table")


def columns(tree: ast.AST) -> Iterator[str]:
    """Yield every column that a module of store/tables defines, as table.column."""
    for table in tables(tree):
        for column in table.args[2:]:
            if isinstance(column, ast.Call) and called(column) in {"Column", "timestamp", "created_timestamp"}:
                yield f"{literal(table)}.{literal(column)}"


def offences(path: str, tree: ast.Module) -> Iterator[Offence]:
    """Yield what one module does against the rules."""
    if is_retired(Path(path).with_suffix("").as_posix()):
        yield f"retired word in a module's name: {path}"
    docstrings = documentation(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            if is_retired(node.name):
                yield f"retired word in a class name: {path}: {node.name}"
            if path == "settings.py":
                fields = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
                for field in fields:
                    if isinstance(field, ast.Name) and is_retired(field.id):
                        yield f"retired word in a setting: {path}: {field.id}"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if is_retired(node.name):
                yield f"retired word in a function name: {path}: {node.name}"
            elif is_participle(node.name) and f"{path}::{node.name}" not in PARTICIPLE_FUNCTIONS:
                yield f"function named by a participle: {path}: {node.name}"
        elif isinstance(node, ast.Call):
            name = literal(node)
            if name and is_log_call(node) and is_retired(name):
                yield f"retired word in a log event: {path}: {name}"
            is_metric = called(node) in {"Counter", "Gauge", "Histogram"}
            if name and is_metric and is_retired(name) and name not in FORMER_METRICS:
                yield f"retired word in a metric: {path}: {name}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            text = node.value
            if len(text) > 8 and " " in text and Path(path).name not in PROMPTS:
                for kind, riddle in RIDDLES.items():
                    if riddle.search(text):
                        yield f"riddling text ({kind}): {path}:{node.lineno}: {text[:80]!r}"
    if path.startswith("store/tables/"):
        for table in tables(tree):
            if set(words_of(literal(table) or "")) & (RETIRED | {"turns"}) and literal(table) not in FORMER_TABLES:
                yield f"retired word in a table: {path}: {literal(table)}"
        for column in columns(tree):
            if set(words_of(column.partition(".")[2])) & COLUMN_WORDS:
                yield f"retired word in a column: {path}: {column}"


def duplicate_classes(modules: Mapping[str, ast.Module]) -> Iterator[Offence]:
    """Yield each class name that two places define; private classes of modules may share one."""
    paths_by_name: dict[str, list[str]] = defaultdict(list)
    for path, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                paths_by_name[node.name].append(path)
    for name, paths in sorted(paths_by_name.items()):
        if len(paths) > 1:
            yield f"class name defined more than once: {name}: {', '.join(paths)}"


@cache
def read(root: Path) -> Mapping[str, ast.Module]:
    """Return the modules of the product below a root, parsed, by path."""
    files = [file for name in PRODUCT for file in (*root.glob(f"{name}.py"), *(root / name).rglob("*.py"))]
    return {file.relative_to(root).as_posix(): ast.parse(file.read_bytes()) for file in sorted(files)}


def offences_below(root: Path) -> list[Offence]:
    modules = read(root)
    return [
        *(offence for path, tree in modules.items() for offence in offences(path, tree)),
        *duplicate_classes(modules),
    ]


@cache
def offences_of_the_tree() -> Sequence[Offence]:
    return offences_below(ROOT)


KINDS = (
    "retired word in a module's name",
    "retired word in a class name",
    "retired word in a function name",
    "retired word in a setting",
    "retired word in a log event",
    "retired word in a metric",
    "retired word in a table",
    "retired word in a column",
    "function named by a participle",
    "riddling text",
    "class name defined more than once",
)


@pytest.mark.parametrize("kind", KINDS)
def test_tree_has_no_offence(kind: str) -> None:
    found = [offence for offence in offences_of_the_tree() if offence.startswith(kind)]

    assert not found, f"{len(found)} offences:\n" + "\n".join(found)


def test_tables_with_a_former_name_exist() -> None:
    defined = {
        literal(table)
        for path, tree in read(ROOT).items()
        if path.startswith("store/tables/")
        for table in tables(tree)
    }

    assert set(FORMER_TABLES) <= defined, "Remove the tables that have been renamed from FORMER_TABLES."


def test_allowed_participle_functions_exist() -> None:
    defined = {
        f"{path}::{node.name}" for path, tree in read(ROOT).items() for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }  # fmt: skip

    assert set(PARTICIPLE_FUNCTIONS) <= defined


def test_every_retired_word_of_the_glossary_is_checked() -> None:
    page = (ROOT / "docs" / "glossary.md").read_text("utf-8").partition("## Words we retired")[2]
    entries = re.sub(r"\([^)]*\)", "", page.strip().partition(".")[0]).split(",")
    listed = [words_of(word) for entry in entries for word in entry.split("/")]

    unchecked = [
        words
        for words in listed
        if not RETIRED & set(words) and tuple(words) not in RETIRED_PAIRS and words[0] not in ORDINARY
    ]

    assert len(listed) > 40
    assert unchecked == []


OFFENDING = {
    "worker/eager.py": ("", "retired word in a module's name: worker/eager.py"),
    "worker/told.py": ("class Told: pass", "retired word in a class name: worker/told.py: Told"),
    "api/agents/agents.py": ("def tell_all(): pass", "retired word in a function name: api/agents/agents.py: tell_all"),
    "api/http/paging.py": (
        "def is_called_off(): pass", "retired word in a function name: api/http/paging.py: is_called_off",
    ),
    "settings.py": (
        "class Settings:\n    deaf_after: int = 3", "retired word in a setting: settings.py: deaf_after",
    ),
    "scheduler/tasks.py": (
        "log.warning('hints_not_sent', run_id=1)", "retired word in a log event: scheduler/tasks.py: hints_not_sent",
    ),
    "telemetry.py": (
        "A = Counter('easel_strikes', 'text')", "retired word in a metric: telemetry.py: easel_strikes",
    ),
    "store/tables/runs.py": (
        "a = Table('runs', metadata, Column('wave', Integer))",
        "retired word in a column: store/tables/runs.py: runs.wave",
    ),
    "store/tables/mcp.py": (
        "a = Table('inbox', metadata, Column('id', Uuid))",
        "retired word in a table: store/tables/mcp.py: inbox",
    ),
    "canvas/state/statuses.py": (
        "async def _shown(): pass", "function named by a participle: canvas/state/statuses.py: _shown",
    ),
    "cli/runs/run.py": (
        "raise Refused(f'{name} is no pair. Write it as name=value.')",
        "riddling text (is no X): cli/runs/run.py:1: ' is no pair. Write it as name=value.'",
    ),
    "cli/server/up.py": (
        "'''Start.'''\nprint('Whoever answers gets it.')",
        "riddling text (somebody, nobody, whoever): cli/server/up.py:2: 'Whoever answers gets it.'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("path", OFFENDING)
def test_offence_is_detected(path: str) -> None:
    source, expected = OFFENDING[path]

    assert expected in list(offences(path, ast.parse(source)))


def test_offences_of_a_whole_tree_are_detected(tmp_path: Path) -> None:
    for path, (source, _) in OFFENDING.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(source, "utf-8")
    (tmp_path / "api" / "twice.py").write_text("class Page: pass", "utf-8")
    (tmp_path / "cli" / "twice.py").write_text("class Page: pass", "utf-8")

    found = offences_below(tmp_path)

    assert {kind for kind in KINDS if any(offence.startswith(kind) for offence in found)} == set(KINDS)
    assert "class name defined more than once: Page: api/twice.py, cli/twice.py" in found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("providers/models/chat/echo.py", "class EchoModel: pass"),
        ("api/agents/agents.py", "def list_agents(): pass\ndef seed(): pass\ndef embed(): pass"),
        ("api/agents/agents.py", "def f():\n    '''Nobody reads this.'''"),
        ("cli/runs/run.py", "print('There is no run 42. It is no longer there.')"),
        ("telemetry.py", "A = Histogram('easel_fold_seconds', 'Deprecated: use easel_advance_seconds')"),
        (
            "store/tables/runs.py",
            "a = Table('turns', metadata, Column('writer', Uuid), Column('retained_length', Integer))",
        ),
        ("bench/hops/hops.py", "store.info('letters')"),
    ],
)
def test_allowed_name_or_text_is_not_an_offence(path: str, source: str) -> None:
    assert list(offences(path, ast.parse(source))) == []
