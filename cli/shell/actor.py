"""Who runs this command, as the audit log names it."""

import getpass

from store.tenants.audit import Actor


def find_actor() -> Actor:
    """Return the command line as an actor, with the name of the user of this machine if it has one."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # in a container, a process may run as a number without a name
        name = ""
    return Actor("command_line", name=name)
