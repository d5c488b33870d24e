"""How a tool that has run out of time reads."""


def timed_out(seconds: float, component: str = "") -> str:
    """Return the failure of a tool that took too long; with a component, the setting that would give it more time."""
    told = f"Operation timed out after {seconds:g} seconds"
    return f"{told}. An operator can raise COMPONENT_EXEC_TIMEOUT_{component.upper()}." if component else told
