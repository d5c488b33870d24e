"""The account that runs the servers, and the folder of their files: PostgreSQL refuses to run as root."""

import hashlib
import os
import pwd
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from embedded.refusals import refusal

Account: TypeAlias = Mapping[str, Any]  # options of Popen for the account; {} for the current one

ROOTS_PLACE = Path("/var/lib/easel")  # for files of root, if the account of PostgreSQL cannot enter the home


def account_for(data: Path | None = None) -> Account:
    """Return the account to run servers as: the current one; for root the owner of `data`, else an unprivileged one."""
    if os.geteuid() != 0:
        return {}
    if data is not None:
        return {"user": data.stat().st_uid, "group": data.stat().st_gid, "extra_groups": []}
    for name in ("nobody", "daemon", "postgres"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise refusal("PostgreSQL does not run as root, and the user `nobody` to run it as does not exist.")


def place_of(home: Path) -> Path:
    """Return the folder of the servers' files: the home, or one below ROOTS_PLACE if only root can enter the home."""
    if os.geteuid() != 0 or all(folder.stat().st_mode & 0o001 for folder in (home, *home.parents)):
        return home
    place = ROOTS_PLACE / hashlib.sha256(bytes(home)).hexdigest()[:12]
    try:
        for folder in (ROOTS_PLACE, place):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o711)
    except OSError as error:
        raise refusal(f"Only root can enter {home}, and {ROOTS_PLACE} cannot be created.") from error
    return place
