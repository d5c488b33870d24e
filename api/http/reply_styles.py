"""Styles of replies: how a route answers, and above all how it says that something went wrong.

A router names its style by its route class (`APIRouter(route_class=OwnRoute)`); a router without one answers in
RAGFlow's envelope. A request that turns out to speak another style while it is read says so (`speak`).
"""

from enum import Enum, auto
from typing import ClassVar

from fastapi import Request
from fastapi.routing import APIRoute


class Style(Enum):
    """Whose words a reply is in."""

    RAGFLOW = auto()  # {"code", "message", "data"}, with status 200 unless the client asks for real statuses
    OWN = auto()  # {"code", "message", "details"}, with real statuses
    OPENAI = auto()  # {"error": {"message", "type", "param", "code"}}, with real statuses


class OwnRoute(APIRoute):
    """A route of ours."""

    style: ClassVar[Style] = Style.OWN


class OpenAIRoute(APIRoute):
    """A route for clients of OpenAI's API."""

    style: ClassVar[Style] = Style.OPENAI


def speak(request: Request, style: Style) -> None:
    """Answer this request in a style, whatever its route says."""
    request.state.style = style


def style_of(request: Request) -> Style:
    """The style in which this request is answered."""
    spoken: Style | None = getattr(request.state, "style", None)
    if spoken is not None:
        return spoken
    route = request.scope.get("route")
    return route.style if isinstance(route, OwnRoute | OpenAIRoute) else Style.RAGFLOW
