"""The types of ids. At run time each is a UUID; a type checker tells them apart.

A UUID that comes in (a path, an option, a column) becomes one of these where its meaning is known: `RunId(value)`.
"""

from typing import NewType
from uuid import UUID

TenantId = NewType("TenantId", UUID)
CanvasId = NewType("CanvasId", UUID)
VersionId = NewType("VersionId", UUID)
SessionId = NewType("SessionId", UUID)
"""The id of a session, which tables call a conversation."""
RunId = NewType("RunId", UUID)
ActivationId = NewType("ActivationId", UUID)
"""The id of an activation. The message stream of a Message node has the id of its activation."""
LeaseId = NewType("LeaseId", UUID)
