"""Who runs the servers, and where their files go: PostgreSQL refuses to run as root."""

import hashlib
import os
import pwd
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from embedded.refusals import refusal

Account: TypeAlias = Mapping[str, Any]  # options of Popen: whom to run a program as; {} for ourselves

ROOTS_PLACE = Path("/var/lib/easel")  # for root's files when its home is closed to the account that runs PostgreSQL


def account_for(data: Path | None = None) -> Account:
    """Ourselves; as root, which PostgreSQL refuses to be, the owner of the data, else somebody who may do nothing."""
    if os.geteuid() != 0:
        return {}
    if data is not None:
        return {"user": data.stat().st_uid, "group": data.stat().st_gid, "extra_groups": []}
    for name in ("nobody", "daemon", "postgres"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise refusal("PostgreSQL does not run as root, and there is no user `nobody` to run it as.")


def place_of(home: Path) -> Path:
    """Where the servers' files go: the home, or a place of root's own where only root may pass through to the home."""
    if os.geteuid() != 0 or all(folder.stat().st_mode & 0o001 for folder in (home, *home.parents)):
        return home
    place = ROOTS_PLACE / hashlib.sha256(bytes(home)).hexdigest()[:12]
    try:
        for folder in (ROOTS_PLACE, place):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o711)
    except OSError as error:
        raise refusal(f"Only root may enter {home}, and {ROOTS_PLACE} cannot be made.") from error
    return place
