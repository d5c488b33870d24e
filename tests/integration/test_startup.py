"""Commands import only the packages that they need, so that they start quickly."""

import subprocess
import sys


def test_running_a_canvas_imports_neither_web_server_nor_model_library():
    program = "import sys, cli.runs.turn, cli.runs.run; print(*sys.modules)"

    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert not {"fastapi", "uvicorn", "openai", "flower"} & set(imported.split())
