"""What is built has everything in it: the wheel's list, the image's copies and the checked sources name the same."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKED = set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"])


def test_the_wheel_has_every_package_and_module_of_ours():
    ours = {path.parent.name for path in ROOT.glob("*/__init__.py")} | {path.name for path in ROOT.glob("*.py")}

    assert ours - {"tests"} <= PACKED
    assert all((ROOT / name).exists() for name in PACKED)


def test_the_image_is_built_from_all_that_the_wheel_needs():
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)

    assert {name for line in copied for name in line.split()} >= PACKED


def test_types_are_checked_in_all_that_is_packed_but_migrations():
    assert set(PROJECT["tool"]["pyright"]["include"]) == PACKED - {"migrations"}
