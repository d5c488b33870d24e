"""The wheel, the image and the type-checked sources contain the same packages, and declare and lock what they import.

Only those modules of bench that `easel bench` needs are packed.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.licences import Licence, installed_licences, locked_names

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKED = set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"])
PACKAGES = {name.partition("/")[0] for name in PACKED}


def test_the_wheel_has_every_package_and_module_of_ours():
    ours = {path.parent.name for path in ROOT.glob("*/__init__.py")} | {path.name for path in ROOT.glob("*.py")}

    assert ours - {"tests"} <= PACKAGES
    assert all((ROOT / name).exists() for name in PACKED)


def test_the_wheel_has_the_built_pages_and_nothing_else_of_them():  # T110
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()

    assert {name for name in PACKED if name.startswith("viewer")} == {"viewer/dist"}
    assert (ROOT / "viewer" / "dist" / "index.html").is_file()
    assert ignored.index("!/viewer/dist/") > ignored.index("dist/")  # else the wheel leaves it out


def test_image_copies_everything_that_the_wheel_contains():  # T110
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)

    assert {name for line in copied for name in line.split()} >= PACKED


def test_types_are_checked_in_all_packed_modules_except_migrations():
    assert set(PROJECT["tool"]["pyright"]["include"]) == PACKAGES - {"examples", "migrations", "viewer"}


def imported_packages(path: Path) -> Iterator[str]:
    """Yield the top-level packages that a module imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def declared() -> set[str]:
    """Return the names of all distributions that pyproject.toml names, extras included."""
    project = PROJECT["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    return {canonicalize_name(Requirement(line).name) for line in lines}


def test_every_library_that_we_import_is_declared():
    ours = PACKAGES | {name.removesuffix(".py") for name in PACKAGES}
    known = packages_distributions()
    imported = {
        (package, str(path.relative_to(ROOT)))
        for name in PACKED
        for path in ((ROOT / name).rglob("*.py") if "." not in name else [ROOT / name])
        for package in imported_packages(path)
        if package not in ours and package not in sys.stdlib_module_names
    }

    undeclared = {
        (package, file)
        for package, file in imported
        if not {canonicalize_name(name) for name in known.get(package, [package])} & declared()
    }

    assert imported
    assert not undeclared


def test_lock_has_every_declared_library():
    locked = {canonicalize_name(name) for name in locked_names((ROOT / "requirements.lock").read_text("utf-8"))}

    assert declared() - {"easel", "cosmic-ray", "coverage"} <= locked


def test_licences_of_all_locked_libraries_are_accepted():
    found = list(installed_licences(locked_names((ROOT / "requirements.lock").read_text("utf-8"))))

    assert len(found) > 100
    assert [each for each in found if not each.is_accepted] == []


def test_copyleft_licences_and_missing_ones_are_not_accepted():
    for text in ("GPL-3.0-only", "AGPL-3.0-or-later", "MIT AND GPL-2.0-only", "none stated", "Proprietary"):
        assert not Licence("a", "1", text).is_accepted
    for text in ("LGPL-3.0-only", "MIT OR GPL-2.0-only", "Apache-2.0 AND (MIT OR BSD-3-Clause)"):
        assert Licence("a", "1", text).is_accepted


def paths_of(module: str) -> list[str]:
    """Return the paths that pack a module if the wheel's list has one of them: its packages and its file."""
    parts = module.split(".")
    return ["/".join(parts[:length]) for length in range(1, len(parts) + 1)] + [f"{'/'.join(parts)}.py"]


def test_packed_modules_import_only_packed_modules_of_bench():
    packed = [path for name in PACKED for path in ((ROOT / name).rglob("*.py") if "." not in name else [ROOT / name])]
    imported = {
        module.module
        for path in packed
        for module in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(module, ast.ImportFrom) and module.module and module.module.split(".")[0] == "bench"
    }

    assert imported
    assert all(any(path in PACKED for path in paths_of(module)) for module in imported)
