"""What axe finds on a page."""

from pathlib import Path
from typing import Any

import pytest

AXE = Path(__file__).resolve().parents[2] / "viewer" / "node_modules" / "axe-core" / "axe.min.js"


def axe_findings(page: Any, theme: str) -> list[str]:
    """Return the findings; of the dark theme, only those about colours."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci in viewer/")
    rules = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"] if theme == "light" else ["color-contrast"]
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("rules => axe.run(document, {runOnly: rules})", rules)
    return [f"{rule['id']}: {node['html'][:200]}" for rule in found["violations"] for node in rule["nodes"]]


def width_of(page: Any) -> int:
    """Return how wide the document is; more than the window if it scrolls sideways."""
    return page.evaluate("document.documentElement.scrollWidth")
