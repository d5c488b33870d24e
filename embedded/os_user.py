"""The account that runs the servers, and the folder of their files: PostgreSQL refuses to run as root."""

import hashlib
import os
import pwd
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from embedded.errors import cannot_run

OsAccount: TypeAlias = Mapping[str, Any]  # options of Popen for the account; {} for the current one

ROOT_FILES_DIR = Path("/var/lib/easel")  # for files of root, if the account of PostgreSQL cannot enter the home


def account_for(data: Path | None = None) -> OsAccount:
    """Return the account to run servers as: the current one; for root the owner of `data`, else an unprivileged one."""
    if os.geteuid() != 0:
        return {}
    if data is not None:
        return {"user": data.stat().st_uid, "group": data.stat().st_gid, "extra_groups": []}
    for name in ("nobody", "daemon", "postgres"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise cannot_run("PostgreSQL does not run as root, and the user `nobody` to run it as does not exist.")


def server_files_dir(home: Path) -> Path:
    """Return the folder of the servers' files: the home, or one below ROOT_FILES_DIR if only root can enter it."""
    if os.geteuid() != 0 or all(folder.stat().st_mode & 0o001 for folder in (home, *home.parents)):
        return home
    place = ROOT_FILES_DIR / hashlib.sha256(bytes(home)).hexdigest()[:12]
    try:
        for folder in (ROOT_FILES_DIR, place):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o711)
    except OSError as error:
        raise cannot_run(f"Only root can enter {home}, and {ROOT_FILES_DIR} cannot be created.") from error
    return place
