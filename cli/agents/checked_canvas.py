"""A canvas with its findings. This module imports no component, so that commands without a canvas begin at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from canvas.document import parsing
from canvas.document.document import Document
from canvas.validation.findings import Finding


@dataclass(frozen=True, slots=True)
class CheckedCanvas:
    """A canvas with its findings; `document` is None if the file does not contain one."""

    document: Document | None
    errors: Sequence[Finding]
    warnings: Sequence[Finding]

    @property
    def dsl(self) -> dict[str, Any]:
        """The document as it is stored. Only for a canvas that can run."""
        assert self.document is not None
        return parsing.dump(self.document)
