"""The error text for a refused address: RAGFlow's words, and the reason if the address is well-formed."""

from canvas.errors import AddressRefused

NOT_VALID = "URL not valid"


def not_valid(refused: AddressRefused) -> str:
    """Return RAGFlow's text for a refused address; for a well-formed one with the reason and what to do."""
    if refused.details.get("is_malformed"):
        return NOT_VALID
    return f"{NOT_VALID}: {refused.message} An operator can allow the host with EASEL_SSRF_ALLOW."
