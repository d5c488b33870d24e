"""The wheel, the image and the type-checked sources contain the same packages.

Only those modules of bench that `easel bench` needs are packed.
"""

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKED = set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"])
PACKAGES = {name.partition("/")[0] for name in PACKED}


def test_the_wheel_has_every_package_and_module_of_ours():
    ours = {path.parent.name for path in ROOT.glob("*/__init__.py")} | {path.name for path in ROOT.glob("*.py")}

    assert ours - {"tests"} <= PACKAGES
    assert all((ROOT / name).exists() for name in PACKED)


def test_image_copies_everything_that_the_wheel_contains():
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)

    assert {name for line in copied for name in line.split()} >= PACKED


def test_types_are_checked_in_all_packed_modules_except_migrations():
    assert set(PROJECT["tool"]["pyright"]["include"]) == PACKAGES - {"migrations"}


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
