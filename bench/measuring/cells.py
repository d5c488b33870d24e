"""Rows and figures of Markdown tables."""


def row(told: str, *figures: float) -> str:
    """One row: what it is about, and its figures."""
    return f"| {told} | " + " | ".join(map(shown, figures)) + " |"


def shown(value: float) -> str:
    """A figure with as many digits as it deserves."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"
