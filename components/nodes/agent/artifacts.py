"""Files that tools made, as links behind an answer."""

from collections.abc import Iterable, Mapping
from typing import Any


def artifact_links(answer: str, artifacts: Iterable[Mapping[str, Any]]) -> str:
    """What is to follow an answer: each {name, url, mime_type} it does not show yet, as a picture or a download."""
    links: dict[str, None] = {}
    for artifact in artifacts:
        name, url = str(artifact.get("name") or ""), str(artifact.get("url") or "")
        if not url or f"![]({url})" in answer or f"![{name}]({url})" in answer:
            continue
        is_picture = str(artifact.get("mime_type") or "").startswith("image/")
        links[f"![{name}]({url})" if is_picture else f"[Download {name}]({url})"] = None
    blocks = [answer, *links] if answer else list(links)
    return "\n\n".join(blocks)[len(answer) :]
