"""The virtual environment with a generator of clients and a fuzzer, and a deployment for them."""

import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bench.fixtures.deployment import Deployment, run_deployment

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".cache" / "contract"
PACKAGES = ("openapi-python-client>=0.29,<0.30", "schemathesis>=4.32,<5")


def tool(name: str) -> Path:
    """Return a program of the environment, which is made if it does not exist."""
    program = FOLDER / "bin" / name
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], check=True)
        subprocess.run([str(FOLDER / "bin" / "pip"), "install", "-q", *PACKAGES], check=True)
    return program


@contextmanager
def deployment() -> Generator[Deployment]:
    """Run `easel up` until the block ends; yield it."""
    with tempfile.TemporaryDirectory(prefix="easel-contract-") as folder:
        Path(folder).chmod(0o711)  # as root, PostgreSQL runs under another account and must get through
        with run_deployment(Path(folder), settings={"EASEL_OPEN_SCHEMA": "true"}) as running:
            yield running
