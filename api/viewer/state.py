"""The state of an API process for these routes."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request

from api.http.recent_replies import RecentReplies
from api.requests.token_bucket import TokenBuckets

MAX_AGE = 10.0  # seconds for which figures are shown again


@dataclass(frozen=True, slots=True)
class ViewerState:
    """Settings of the process that pages show, when it started (by its monotonic clock), and recent figures."""

    settings: Mapping[str, Any]  # by variable
    flower_url: str | None
    buckets: TokenBuckets
    model_calls: str = "full"
    count_sign_in: Callable[[str], None] = lambda kind: None
    started: float = field(default_factory=time.monotonic)
    overviews: RecentReplies[dict[str, Any]] = field(default_factory=lambda: RecentReplies[dict[str, Any]](MAX_AGE))


async def get_viewer_state(request: Request) -> ViewerState:
    """Return the ViewerState of the process. It is async because FastAPI calls other functions in a thread."""
    state: ViewerState = request.app.state.viewer
    return state


ViewerStateDep = Annotated[ViewerState, Depends(get_viewer_state)]
