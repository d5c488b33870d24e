"""An application below a path: its requests are recognised with the path and without it."""

from starlette.types import ASGIApp, Receive, Scope, Send


class BasePath:
    """Middleware that tells the application below which path it is served, as ASGI's `root_path`.

    A proxy may remove the path from the requests that it forwards, or leave it: routes match in both cases.
    """

    def __init__(self, app: ASGIApp, base_path: str) -> None:
        self._app = app
        self._base_path = base_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(f"{self._base_path}/"):
            scope = {**scope, "root_path": self._base_path}
        await self._app(scope, receive, send)
