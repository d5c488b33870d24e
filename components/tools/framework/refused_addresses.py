"""How an address that may not be asked reads: RAGFlow's words, and the reason where the address is one."""

from canvas.errors import AddressRefused

NOT_VALID = "URL not valid"


def not_valid(refused: AddressRefused) -> str:
    """Return RAGFlow's words for an address that is none; the reason follows where it leads where nothing may go."""
    if refused.details.get("is_malformed"):
        return NOT_VALID
    return f"{NOT_VALID}: {refused.message} An operator can allow the host with EASEL_SSRF_ALLOW."
