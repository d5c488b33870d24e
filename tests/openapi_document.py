"""Write the OpenAPI document of the application to `viewer/openapi.json`: `python -m tests.openapi_document`.

`make viewer-types` does this, and then makes TypeScript types of it for the pages (`viewer/src/api/schema.ts`).
"""

import json
from pathlib import Path

from api.app import ApiConfig, create_app
from settings import Settings

ROOT = Path(__file__).resolve().parents[1]
PATH = ROOT / "viewer" / "openapi.json"
RENEW = "run `make viewer-types` (needs Node), or `python -m tests.openapi_document` for openapi.json alone"


def document_text() -> str:
    """Return the document as the file has it: without the release, so that a release does not change the file."""
    settings = Settings(database_url="postgresql+psycopg://nowhere/x", redis_url="redis://nowhere")
    document = create_app(ApiConfig(settings)).openapi()
    document["info"]["version"] = "0"
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PATH.write_text(document_text())
