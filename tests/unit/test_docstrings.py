"""Docstrings and comments name what exists: a name that the code does not have, or no longer has, fails here.

Checked are joined words (`claim_run`, `RunState`) wherever they stand, all that stands in backticks in the form of a
name (`run`, `Run.status`, `run()`, `store.runs`), the names after "Raises", and paths of modules and pages.
"""

import ast
import builtins
import keyword
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path, PurePosixPath

import pytest

from tests.unit.test_imports import MAY_IMPORT

ROOT = Path(__file__).resolve().parents[2]

FOREIGN = frozenset(
    re.findall(
        r"\S+",
        """
    AgentRun CommonMark DashScope DejaVu E2B KiB MariaDB MySQL NumPy OpenAPI Prefer RabbitMQ
    auth_mode dimensions is_reff normalize
    ALL_PROXY AWS_ACCESS_KEY_ID HTTPS_PROXY HTTP_PROXY NO_PROXY OPENAI_CUSTOM_HEADERS
    AF_INET AF_INET6 AF_NETLINK AF_UNIX AF_VSOCK PR_SET_PDEATHSIG deadlock_timeout halfvec infinity io_uring jsonb
    tsvector
    APIRouter ClientError _current_frames add_paragraph create_request_cls get_context openapi_extra
    route_class
    """,
    )
)  # products and units; RAGFlow and vendors; what libraries read; the kernel and PostgreSQL; members of libraries
EXAMPLES = frozenset(
    re.findall(
        r"\S+",
        """
    BadCalculator activation_finished arrived_at bad_calculator begin_x celery/app.py events_after_42 generate_1
    model___VLLM my_package name_1 name_2 prod123 sleep x_x x_y
    YAHOOFINANCE_QUERY1_FINANCE_YAHOO_COM embedding_tokens of_embedding_tokens p2026w47 runs_p2026w47
    """,
    )
)  # what authors and users may write; names that the code composes

ALWAYS = FOREIGN.union(EXAMPLES, dir(builtins), keyword.kwlist, sys.stdlib_module_names)
WORD = re.compile(r"(?<!\w)[A-Za-z_]\w*")
JOINED = re.compile(r"_*[A-Za-z0-9]+_\w*[A-Za-z0-9]|_+[A-Za-z]\w+|[A-Z]+[a-z0-9]+[A-Z]\w*")  # snake_case, CamelCase
RAISES = re.compile(r"\bRaises (`?[A-Z]\w+`?(?:(?:,? (?:or|and) |, )`?[A-Z]\w+`?)*)")
STRING_OR_COMMENT = re.compile(
    r"""(?s:\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3})|"(?:\\(?s:.)|[^"\\\n])*"|'(?:\\(?s:.)|[^'\\\n])*'|\#[^\n]*"""
)
MARKED = re.compile(r"(`+)([^`]+)\1")
NAME = re.compile(r"\w+(?:\.\w+)*(?:\([^()]*\))?")
DATA = re.compile(r"(?!tests/|examples/|docs/)(?:.*/)?[\w.-]+\.(?:js|lua|toml)")
FILE = re.compile(r"(?<![\w/.:-])(?:[\w-]+/)*[\w-]+\.(?:py|md|lua|toml)(?!\w)")

Offence = str
"""path:line: name"""


def is_joined(word: str) -> bool:
    return JOINED.fullmatch(word) is not None


@dataclass(slots=True)
class Module:
    """What one module names, and its prose."""

    path: str
    classes: set[str] = field(default_factory=set)  # that it defines
    fields: set[str] = field(default_factory=set)  # of these classes
    names: set[str] = field(default_factory=set)  # all identifiers
    values: set[str] = field(default_factory=set)  # texts that are one word, or a path of words
    in_texts: set[str] = field(default_factory=set)  # joined words in other texts, such as SQL
    imports: set[str] = field(default_factory=set)  # modules, and names of modules
    prose: list[tuple[int, str]] = field(default_factory=list)  # docstrings and comments by line

    @property
    def name(self) -> str:
        return ".".join(PurePosixPath(self.path).with_suffix("").parts).removesuffix(".__init__")

    @property
    def package(self) -> str:
        return self.name if self.path.endswith("__init__.py") else self.name.rpartition(".")[0]


def read_module(path: str, source: str) -> Module:
    """Return the names and the prose of a module."""
    module = Module(path)
    module.names.update(PurePosixPath(path).with_suffix("").parts)
    docstrings: set[int] = set()
    tree = ast.parse(source)
    for node in ast.walk(tree):  # each node comes before its parts
        match node:
            case ast.Expr(value=ast.Constant(value=str(text)) as constant):
                docstrings.add(id(constant))
                module.prose.append((node.lineno, text))
            case ast.Constant(value=str(text)) if id(node) not in docstrings:
                words = WORD.findall(text)
                is_value = re.fullmatch(r"[\w.:/*-]+", text) is not None
                (module.values if is_value else module.in_texts).update(
                    word for word in words if is_value or is_joined(word)
                )
            case ast.Constant(value=bytes(data)):
                module.values.update(WORD.findall(data.decode("latin-1")))
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                module.names.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                module.names.add(name)
            case ast.ClassDef(name=name, body=body):
                module.names.add(name)
                module.classes.add(name)
                fields = (each.target for each in body if isinstance(each, ast.AnnAssign))
                module.fields.update(each.id for each in fields if isinstance(each, ast.Name))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                module.names.add(name)
            case ast.Import(names=imported):
                module.imports.update(each.name for each in imported)
            case ast.ImportFrom(module=str(origin), names=imported):
                module.imports.add(origin)
                module.imports.update(f"{origin}.{each.name}" for each in imported)
            case ast.alias(name=name, asname=other):
                module.names.update(name.split("."))
                module.names.update({other} if other else ())
            case _:
                pass
    module.prose.extend(comments(source))
    return module


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of a module with their lines; comments below each other are one text."""
    line = position = first = 0
    last, block = (-1, -1), list[str]()
    for found in STRING_OR_COMMENT.finditer(source):
        line, position = line + source.count("\n", position, found.start()), found.start()
        if not found[0].startswith("#"):
            continue
        column = position - source.rfind("\n", 0, position)
        if block and (line - 1, column) != last:
            yield first + 1, "\n".join(block)
            block.clear()
        first = first if block else line
        block.append(found[0].lstrip("# "))
        last = line, column
    if block:
        yield first + 1, "\n".join(block)


@dataclass
class Tree:
    """All modules by name, and what else prose may name."""

    modules: Mapping[str, Module]
    files: Collection[str] = ()
    data: str = ""  # the contents of other files of the product, such as the table of vendors
    tests: Callable[[], Collection[str]] = frozenset[str]  # names of test functions

    def __post_init__(self) -> None:
        modules = self.modules.values()
        self.paths = ALWAYS.union(*(module.name.split(".") for module in modules))
        self.names = self.paths.union(*(module.names for module in modules))
        self.values = set[str]().union(*(module.values for module in modules))
        self.in_texts = set(WORD.findall(self.data)).union(*(module.in_texts for module in modules))
        self.members = set[str]().union(*(module.classes | module.fields for module in modules))
        self.file_names = EXAMPLES.union(path.rpartition("/")[2] for path in self.files)
        self.classes: dict[str, list[Module]] = {}  # the modules that define each class
        self.packages: dict[str, list[Module]] = {}
        for module in modules:
            self.packages.setdefault(module.package, []).append(module)
            for name in module.classes:
                self.classes.setdefault(name, []).append(module)

    def near(self, module: Module) -> frozenset[str]:
        """Return the names of a module, of those that it imports, and of those beside it."""
        imported = [self.modules[name] for name in module.imports if name in self.modules]
        return self.paths.union(*(each.names for each in (module, *imported, *self.packages[module.package])))

    def offences(self, module: Module) -> Iterator[Offence]:
        """Yield each name in the prose of a module that nothing has."""
        near = self.near(module)
        for line, text in module.prose:
            without_files = FILE.sub("", text)
            unknown = [
                *(path for path in FILE.findall(text) if not self.has_file(path, module)),
                *(word for word in WORD.findall(without_files) if is_joined(word) and not self.has_joined(word)),
                *(word for word in errors_raised(text) if word not in self.names),
                *(
                    name
                    for _, name in MARKED.findall(without_files)
                    if NAME.fullmatch(name) and not self.has(name, near)
                ),
            ]
            yield from (f"{module.path}:{line}: {name}" for name in dict.fromkeys(unknown))

    def has_file(self, path: str, module: Module) -> bool:
        """Return whether a file is there: a path from the root or from a package of the module, or a name alone."""
        folders = ["", *(f"{folder}/" for folder in PurePosixPath(module.path).parents)]
        return path in self.file_names or any(folder + path in self.files for folder in folders)

    def has_joined(self, word: str) -> bool:
        """Return whether a joined word is a name anywhere, a part of a text that is not prose, a setting or a test."""
        return (
            word in self.names
            or word in self.values
            or word in self.in_texts
            or (word.startswith("EASEL_") and word.removeprefix("EASEL_").lower() in self.names)
            or (word.startswith("test_") and word in self.tests())
        )

    def has(self, name: str, near: Collection[str]) -> bool:
        """Return whether a name in backticks is there. A lone word must be near: elsewhere it means something else."""
        if name.split(".")[0] in MAY_IMPORT and "." in name:
            return self.has_path(name.partition("(")[0])
        if not all(
            word in near or word in self.values or (is_joined(word) and (word in self.in_texts or word in self.members))
            for word in WORD.findall(name)
        ):
            return False
        parts = name.partition("(")[0].split(".")
        return all(self.has_member(of, member) for of, member in pairwise(parts))

    def has_member(self, of: str, member: str) -> bool:
        """Return whether a class of ours has a member: a module that defines the class names it, or an imported one."""
        defined = self.classes.get(of)
        return defined is None or any(member in self.near(module) for module in defined)

    def has_path(self, path: str) -> bool:
        """Return whether a dotted path from a package leads to a module, or to a name in one."""
        parts = path.split(".")
        for length in range(len(parts), 0, -1):
            head, rest = ".".join(parts[:length]), parts[length:]
            if head in self.modules:
                return set(rest) <= self.near(self.modules[head])
            if head in self.packages:
                return not rest
        return False


def errors_raised(text: str) -> Sequence[str]:
    """Return the errors that a docstring says are raised."""
    listed = RAISES.findall(" ".join(text.split()))
    return [word for words in listed for word in re.findall(r"[A-Z]\w+", words)]


def names_of_tests() -> Collection[str]:
    files = (ROOT / "tests").rglob("*.py")
    return {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text("utf-8"))}


@cache
def product() -> Tree:
    paths = [path for name in MAY_IMPORT for path in (*ROOT.glob(f"{name}.py"), *(ROOT / name).rglob("*.py"))]
    modules = [read_module(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in sorted(paths)]
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    files = [path for folder in folders for path in folder.rglob("*.*")]
    names = {path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.*"), *files)}
    data = "\n".join((ROOT / name).read_text("utf-8") for name in names if DATA.fullmatch(name))
    return Tree({module.name: module for module in modules}, names, data, cache(names_of_tests))


def test_docstrings_and_comments_name_what_exists() -> None:
    tree = product()

    found = [offence for module in tree.modules.values() for offence in tree.offences(module)]

    assert not found, f"{len(found)} names that nothing has:\n" + "\n".join(found)


def test_listed_exceptions_are_used() -> None:
    tree = product()
    prose = "\n".join(text for module in tree.modules.values() for _, text in module.prose)

    assert (FOREIGN | EXAMPLES) - {*WORD.findall(prose), *FILE.findall(prose)} == set()


SOURCES = {
    "store/errors.py": "class RunGone(Exception): ...",
    "store/runs.py": "from store.errors import RunGone\nclass Run:\n    status = 1\ndef claim(limit): ...",
    "worker/tasks.py": "from store.runs import claim\nQUEUE = 'nodes'\nSQL = 'select lease_until from runs'",
    "api/app.py": "def patience(): ...",
}


def offences_of(prose: str) -> Sequence[str]:
    """Return the wrong names of a text that worker/tasks.py has, once as its docstring and once as a comment."""
    comment = "".join(f"\n# {line}" for line in prose.splitlines())
    found: list[list[str]] = []
    for source in (f'"""{prose}"""', f"text = '# `not` a comment'{comment}"):
        sources = {**SOURCES, "worker/tasks.py": f"{source}\n{SOURCES['worker/tasks.py']}"}
        modules = [read_module(path, text) for path, text in sources.items()]
        tree = Tree(
            {module.name: module for module in modules},
            files={*SOURCES, "docs/glossary.md"},
            tests=lambda: {"test_run_is_claimed"},
        )
        offences = tree.offences(tree.modules["worker.tasks"])
        found.append([offence.rpartition(": ")[2] for offence in offences])
    in_docstring, in_comment = found
    assert in_docstring == in_comment
    return in_docstring


@pytest.mark.parametrize(
    "prose",
    [
        "Claim with `claim(limit)`, `claim()` or `Run.status`. Raises RunGone, ValueError or OSError.",
        "The queue `nodes`, the column lease_until, `store.runs` and `store.runs.claim`, store/runs.py and `runs.py`.",
        "The example `2026w47`, `EASEL_QUEUE=nodes`, `a b`, ``None``, RabbitMQ; docs/glossary.md, test_run_is_claimed.",
    ],
)
def test_names_that_exist_are_accepted(prose: str) -> None:
    assert offences_of(prose) == []


@pytest.mark.parametrize(
    ("prose", "name"),
    [
        ("Pass claim_of as usual.", "claim_of"),
        ("A RunLost is an error.", "RunLost"),
        ("It is `took`.", "took"),
        ("It waits for `patience`, which another package has.", "patience"),
        ("Read `Run.state`.", "Run.state"),
        ("Call `claim(most)`.", "claim(most)"),
        ("See `store.rows`.", "store.rows"),
        ("See `store.runs.take`.", "store.runs.take"),
        ("Start it. Raises Refused.", "Refused"),
        ("Start it. Raises RunGone, or\nRefused if it is over.", "Refused"),
        ("See store/rows.py.", "store/rows.py"),
        ("See docs/words.md.", "docs/words.md"),
        ("See test_run_is_taken.", "test_run_is_taken"),
    ],
)
def test_name_that_does_not_exist_is_detected(prose: str, name: str) -> None:
    assert offences_of(prose) == [name]
