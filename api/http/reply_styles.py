"""Reply styles: the formats in which routes answer and report errors.

The route class of a router determines its style (`APIRouter(route_class=OwnRoute)`); without one, it answers in
RAGFlow's envelope. A handler can change the style of one request (`set_style`).
"""

from enum import Enum, auto
from typing import ClassVar

from fastapi import Request
from fastapi.routing import APIRoute


class Style(Enum):
    """The format of a reply."""

    RAGFLOW = auto()  # {"code", "message", "data"}, with status 200 unless the client asks for real statuses
    OWN = auto()  # {"code", "message", "details"}, with real statuses
    OPENAI = auto()  # {"error": {"message", "type", "param", "code"}}, with real statuses


class OwnRoute(APIRoute):
    """A route of Easel's own API."""

    style: ClassVar[Style] = Style.OWN


class EnvelopeRoute(APIRoute):
    """A route of RAGFlow's datasets and documents, whose clients know a refusal by its code.

    The status of a refusal is 200 also for an invalid request, unless the client asks for real statuses, and its
    envelope has no `data`: RAGFlow's SDK takes the reply of a download for a file if it has another key than `code`
    and `message` (docs/decisions/0077-datasets-are-ragflows.md).
    """


class OpenAIRoute(APIRoute):
    """A route for OpenAI clients."""

    style: ClassVar[Style] = Style.OPENAI


class ShareLinkRoute(APIRoute):
    """A route that RAGFlow opens to share links only, whose pages expect a 200 also where a token is not valid."""


def set_style(request: Request, style: Style) -> None:
    """Set the style of this request instead of that of its route."""
    request.state.style = style


def style_of(request: Request) -> Style:
    """Return the style of this request's reply."""
    spoken: Style | None = getattr(request.state, "style", None)
    if spoken is not None:
        return spoken
    route = request.scope.get("route")
    return route.style if isinstance(route, OwnRoute | OpenAIRoute) else Style.RAGFLOW


def is_share_link_route(request: Request) -> bool:
    """Return whether the request is for one of RAGFlow's routes of share links."""
    return isinstance(request.scope.get("route"), ShareLinkRoute)
