"""The error text of a tool that timed out."""


def timeout_text(seconds: float, component: str = "") -> str:
    """Return the error text of a tool that timed out; with a component, also the setting that raises the limit."""
    message = f"Operation timed out after {seconds:g} seconds"
    return f"{message}. An operator can raise COMPONENT_EXEC_TIMEOUT_{component.upper()}." if component else message
