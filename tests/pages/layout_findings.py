"""What a page loses in a small window, and controls that a finger misses."""

from typing import Any

CONTROLS = "a[href], button, input, select, textarea, summary, [role=tab], [role=button], [role=checkbox]"
PARTS = f"h1, h2, h3, p, [data-testid], {CONTROLS}"
FUNCTIONS = """
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const isSeen = (element) => {
  const {width, height} = element.getBoundingClientRect();
  return width > 1 && height > 1 && element.checkVisibility({visibilityProperty: true});
};
const scrollsSideways = (element) => {
  const canScroll = ["auto", "scroll"].includes(getComputedStyle(element).overflowX);
  return canScroll && element.scrollWidth > element.clientWidth + 1;
};
const isForReadersOfScreens = ({clientWidth, clientHeight}) => clientWidth <= 1 && clientHeight <= 1;
const isCutWithDots = (element) => {
  const {overflowX, textOverflow} = getComputedStyle(element);
  const {right} = element.getBoundingClientRect();
  return overflowX === "hidden" && textOverflow === "ellipsis" && right <= innerWidth + 1;
};
const ancestors = (element) => {
  const found = [];
  for (let each = element.parentElement; each; each = each.parentElement) found.push(each);
  return found;
};
const DRAWINGS = ".react-flow, [role=treegrid]";  // graph and waterfall, which may scroll in two directions
const isInDrawing = (element) => element.closest(DRAWINGS) !== null;
const fillsItsRow = (element) => {
  const {position, content} = getComputedStyle(element, "::after");
  return position === "absolute" && content !== "none";
};
const isInText = (element) => element.tagName === "A" && getComputedStyle(element).display === "inline";
const hasText = (element) => [...element.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
const nameOf = (element) => `${element.tagName} ${element.getAttribute("aria-label") ?? element.innerText ?? ""}`;
const describe = (element) => `${nameOf(element).slice(0, 60)} class=${element.getAttribute("class") ?? ""}`;
"""
NAMES = """(parts) => all("main").flatMap((main) => all(parts, main)).filter(isSeen)
  .map((element) => nameOf(element).replace(/[\\d.,]+ ?(ms|s|min|h)?\\b/g, "#"))"""
SIDEWAYS = """() => {
  const {scrollWidth} = document.documentElement;
  const hasFigures = (element) => element.querySelector(`${DRAWINGS}, table.figures`) !== null;
  const isFound = (element) =>
    isSeen(element) && scrollsSideways(element) && !isInDrawing(element) && !hasFigures(element);
  const document_ = scrollWidth > innerWidth ? [`the document: ${scrollWidth}`] : [];
  return [...document_, ...all("body *").filter(isFound).map(describe)];
}"""
LOST = """(controls) => all("body *")
  .filter((element) => (element.matches(controls) || hasText(element)) && isSeen(element) && !isInDrawing(element))
  .filter((element) => {
    const {left, right} = element.getBoundingClientRect();
    const isReached = (each) => scrollsSideways(each) || isForReadersOfScreens(each) || isCutWithDots(each);
    return (left < -1 || right > innerWidth + 1) && !ancestors(element).some(isReached);
  })
  .map(describe)"""
SMALL = """([controls, least]) => all(controls)
  .filter((each) => isSeen(each) && !isInText(each) && !fillsItsRow(each) && !isInDrawing(each))
  .filter((element) => [element, ...(element.labels ?? [])].every((target) => {
    const {width, height} = target.getBoundingClientRect();
    return width < least || height < least;
  }))
  .map(describe)"""


def sideways_scrolling(page: Any) -> list[str]:
    """Return what scrolls sideways, apart from graph, waterfall and tables of figures."""
    return _evaluate(page, SIDEWAYS)


def lost_parts(page: Any) -> list[str]:
    """Return controls and texts that lie outside of the window where no scrolling reaches them."""
    return _evaluate(page, LOST, CONTROLS)


def small_targets(page: Any, least: int = 24) -> list[str]:
    """Return controls that are smaller than `least` CSS pixels, with their labels; links in texts do not count."""
    return _evaluate(page, SMALL, [CONTROLS, least])


def names_of_parts(page: Any) -> list[str]:
    """Return the headings, texts and controls that are shown, without the figures that change while they are read."""
    return _evaluate(page, NAMES, PARTS)


def _evaluate(page: Any, function: str, argument: Any = None) -> list[str]:
    return page.evaluate(f"(argument) => {{{FUNCTIONS} return ({function})(argument); }}", argument)
