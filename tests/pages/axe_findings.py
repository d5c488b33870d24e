"""What axe finds on a page."""

from pathlib import Path
from typing import Any

import pytest

AXE = Path(__file__).resolve().parents[2] / "viewer" / "node_modules" / "axe-core" / "axe.min.js"
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
COLOURS = ("color-contrast",)  # only colours depend on the theme
IS_SHOWN = """async (theme) => {
  if (document.documentElement.dataset.theme !== theme) return false;
  const animations = document.getAnimations().filter((each) => each.effect?.getTiming().iterations !== Infinity);
  await Promise.all(animations.map((each) => each.finished));
  return true;
}"""
FIND = """async (rules) => {
  const {violations} = await axe.run(document, {runOnly: rules});
  return violations.flatMap(({id, nodes}) => nodes.map(({html}) => `${id}: ${html.slice(0, 200)}`));
}"""


def axe_findings(page: Any) -> list[str]:
    """Return the findings in the light theme, and those about colours in the dark one, which the system asks for."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci in viewer/")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[str] = []
    for theme, rules in (("dark", COLOURS), ("light", RULES)):
        page.emulate_media(color_scheme=theme)
        page.wait_for_function(IS_SHOWN, arg=theme)
        found += [f"{theme}: {finding}" for finding in page.evaluate(FIND, list(rules))]
    return found


def width_of(page: Any) -> int:
    """Return how wide the document is; more than the window if it scrolls sideways."""
    return page.evaluate("document.documentElement.scrollWidth")
