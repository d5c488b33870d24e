"""Formatting of rows and numbers in Markdown tables."""


def table_row(label: str, *figures: float) -> str:
    """Return one row of a table: a label and its figures."""
    return f"| {label} | " + " | ".join(map(format_number, figures)) + " |"


def format_number(value: float) -> str:
    """Format a number: 0 decimals from 100 on, 1 from 10 on, else 2."""
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"
