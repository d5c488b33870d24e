"""The passwords of a run, read by an attempt when it first stores something that could quote them."""

import threading
from dataclasses import dataclass, field

from canvas.graph.canvas import Canvas
from canvas.graph.passwords import NO_PASSWORDS, PasswordMask
from store.db.database import Database
from store.runs import passwords
from store.runs.activations import Claim


@dataclass(eq=False)
class RunPasswords:
    """The passwords that the run of an attempt had when it was read. For several threads."""

    claim: Claim
    database: Database
    canvas: Canvas
    _mask: PasswordMask | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def mask(self) -> PasswordMask:
        """Return the mask of the run's passwords; without a statement if the canvas asks for none.

        Raises SQLAlchemyError if the database is away.
        """
        if not self.canvas.password_fields:
            return NO_PASSWORDS
        with self._lock:
            if self._mask is None:
                with self.database.statements() as tx:
                    self._mask = passwords.load_mask(tx, self.canvas, self.claim.tenant_id, self.claim.run_id)
            return self._mask
