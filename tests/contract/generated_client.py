"""Make a Python client of the OpenAPI document, and play the acceptance story with it."""

import subprocess
import tempfile
from pathlib import Path

from tests.contract.tools import ROOT, deployment, tool
from tests.openapi_document import PATH

STORY = ROOT / "tests" / "contract" / "story.py"
CONFIG = "project_name_override: easel-client\npackage_name_override: easel_client\npost_hooks: []\n"


def check_generated_client() -> bool:
    """Return whether a client can be made without a warning, and the story goes well."""
    with tempfile.TemporaryDirectory(prefix="easel-client-") as folder:
        client = Path(folder) / "client"
        config = Path(folder) / "config.yaml"
        config.write_text(CONFIG)
        made = subprocess.run(
            [str(tool("openapi-python-client")), "generate", "--path", str(PATH), "--config", str(config),
             "--meta", "none", "--output-path", str(client / "easel_client"), "--fail-on-warning"],
            capture_output=True, text=True,
        )  # fmt: skip
        print(made.stdout, made.stderr, sep="\n")  # noqa: T201 (what this is for)
        if made.returncode:
            return False
        with deployment() as running:
            story = subprocess.run(
                [str(tool("python")), str(STORY), running.url, running.token],
                env={"PYTHONPATH": str(client)},
                check=False,
            )
        return story.returncode == 0
