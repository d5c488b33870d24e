"""The error text for a refused address: RAGFlow's words, and the reason if the address is well-formed."""

from canvas.errors import AddressRefused

INVALID_URL = "URL not valid"


def refused_address_text(refused: AddressRefused) -> str:
    """Return RAGFlow's text for a refused address; for a well-formed one with the reason and what to do."""
    if refused.details.get("is_malformed"):
        return INVALID_URL
    return f"{INVALID_URL}: {refused.message} An operator can allow the host with EASEL_SSRF_ALLOW."
