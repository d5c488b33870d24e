"""Celery's `control pool_grow` and `pool_shrink`: a pool of threads refuses them in words."""

from collections.abc import Callable
from typing import Any

from celery.worker import control

REFUSAL = "a pool of threads has a fixed size; restart the worker with another --concurrency"

COMMANDS: dict[str, Callable[..., dict[str, str]]] = {"grow": control.pool_grow, "shrink": control.pool_shrink}


def register() -> None:
    """Replace both commands; with Celery's own, a pool of threads answers an AttributeError."""
    for method, command in COMMANDS.items():
        control.control_command(name=f"pool_{method}", args=[("n", int)], signature="[N=1]")(
            _make_resize(method, command)
        )


def _make_resize(method: str, command: Callable[..., dict[str, str]]) -> Callable[..., dict[str, str]]:
    def resize(state: Any, n: int = 1, **_: Any) -> dict[str, str]:
        if not hasattr(state.consumer.pool, method):
            return control.nok(REFUSAL)
        return command(state, n)

    resize.__doc__ = command.__doc__  # the text of `celery control --list`
    return resize
