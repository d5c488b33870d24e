"""Tests with LangChain's and LiteLLM's clients, which are installed into an environment of their own: `make clients`.

Continuous integration does not run them: the installation takes longer than the tests.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venv-clients"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
SETTING = "EASEL_CLIENTS"  # the interpreter of the environment, for the tests
TESTS = "tests/integration/api/test_other_clients.py"


def main() -> int:
    """Install the clients and run their tests; return pytest's exit code."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        venv.create(ENVIRONMENT, with_pip=True)
    subprocess.run([str(python), "-m", "pip", "install", "-q", "-r", str(REQUIREMENTS)], check=True)
    listed = subprocess.run(
        [str(python), "-m", "pip", "list", "--format=freeze"], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    print(", ".join(line for line in listed if line.startswith(("langchain-openai", "litellm", "openai"))))  # noqa: T201
    command = [sys.executable, "-m", "pytest", "-q", "-ra", TESTS]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, SETTING: str(python)}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
