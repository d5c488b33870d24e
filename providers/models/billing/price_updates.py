"""Updates of the public price list from `EASEL_PRICES_URL`: at the start of a process, and then every hour.

The file has the format of the package's own updates (docs/operations.md, "Prices and budgets", has its address). It is
fetched by Easel's own HTTP client. As long as no fetch has succeeded, the list of the installed package counts.
"""

import asyncio
import json
import logging

import structlog
from genai_prices import UpdatePrices
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot
from genai_prices.types import _providers_from_raw  # pyright: ignore[reportPrivateUsage] (there is no public function)

from canvas.errors import ModelError
from providers.address_policy import Guard
from providers.http.client import HttpClient
from providers.interfaces import HttpCall

log = structlog.get_logger()

INTERVAL = 3600.0  # seconds
TIMEOUT = 30.0  # seconds of one fetch
MAX_BYTES = 32 * 2**20  # the file has about 3 MB


class PriceUpdates(UpdatePrices):
    """Fetches the list from an address, on the background thread of `genai-prices`."""

    def __init__(self, url: str, guard: Guard) -> None:
        super().__init__(update_interval=INTERVAL, url=url)
        self._guard = guard
        logging.getLogger("genai-prices").setLevel(logging.CRITICAL)  # its failures are in our own log line

    def fetch(self) -> DataSnapshot:
        """Return the list as it is at the address. Raises ModelError; the list of before counts then."""
        try:
            return read_list(asyncio.run(self._fetch()))
        except Exception as error:  # whatever it is, the list of before counts, and this line is the only trace
            log.warning("prices_not_updated", error=str(error)[:500])
            raise ModelError(f"The prices at EASEL_PRICES_URL cannot be read: {error}") from error

    async def _fetch(self) -> bytes:
        client = HttpClient(self._guard)
        try:
            # the deployment itself names the address, so it may be private
            call = HttpCall("GET", self.url, timeout=TIMEOUT, redirects=3, trusted=True, max_bytes=MAX_BYTES)
            reply = await client.send(call)
        finally:
            await client.aclose()
        if not reply.is_success:
            raise ValueError(f"HTTP status {reply.status}")
        return reply.content


def read_list(content: bytes) -> DataSnapshot:
    """Return the list in a file. Raises ValueError for anything else."""
    providers = json.loads(content)
    if not isinstance(providers, list) or not providers:
        raise ValueError("The file has no list of providers.")
    try:
        return DataSnapshot(_providers_from_raw(providers), from_auto_update=True)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"The list of providers is malformed: {error}") from error


def start_updates(url: str | None, guard: Guard) -> PriceUpdates | None:
    """Start to update the list of this process from an address, until `stop`; return None without an address."""
    if url is None:
        return None
    updates = PriceUpdates(url, guard)
    updates.start()
    return updates


def update_once(url: str, guard: Guard) -> None:
    """Update the list of this process now. Raises ModelError."""
    set_custom_snapshot(PriceUpdates(url, guard).fetch())
