"""Links to files that tools produced, appended to an Agent's answer."""

from collections.abc import Iterable, Mapping
from typing import Any


def artifact_links(answer: str, artifacts: Iterable[Mapping[str, Any]]) -> str:
    """Return the text to append to an answer: for each {name, url, mime_type} not yet in it, an image or a link."""
    links: dict[str, None] = {}
    for artifact in artifacts:
        name, url = str(artifact.get("name") or ""), str(artifact.get("url") or "")
        if not url or f"![]({url})" in answer or f"![{name}]({url})" in answer:
            continue
        is_picture = str(artifact.get("mime_type") or "").startswith("image/")
        links[f"![{name}]({url})" if is_picture else f"[Download {name}]({url})"] = None
    blocks = [answer, *links] if answer else list(links)
    return "\n\n".join(blocks)[len(answer) :]
