"""Titles of versions. A version whose author gave it none has a default one, as RAGFlow's clients expect it."""

import re
from datetime import datetime
from typing import overload

_DEFAULT = re.compile(r".+_.+_\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}", re.DOTALL)


def default_title(owner: str | None, agent_title: str | None, at: datetime) -> str:
    """Return the default title: the names of tenant and agent, and the time."""
    return f"{owner or 'tenant'}_{agent_title or 'agent'}_{at:%Y-%m-%d %H:%M:%S}"


@overload
def chosen_title(title: str) -> str: ...
@overload
def chosen_title(title: str | None) -> str | None: ...
def chosen_title(title: str | None) -> str | None:
    """Return a title that an author chose; no text for a default one, which is long and names the tenant.

    None, of a run whose version is gone, stays None.
    """
    return "" if title is not None and _DEFAULT.fullmatch(title) else title
