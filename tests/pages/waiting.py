"""Facts that a page shows in a while: each is waited for, with a deadline that a busy machine meets too."""

from typing import Any

TIMEOUT_MS = 30_000


def expect(target: Any) -> Any:
    """Return Playwright's assertions on a locator or page, which are tried again until they hold."""
    from playwright.sync_api import expect as playwright_expect  # the extra `browser` may not be installed

    playwright_expect.set_options(timeout=TIMEOUT_MS)
    return playwright_expect(target)


def wait_for_page(reader: Any, name: str) -> None:
    """Wait until a page is shown and ready, by its name in `data-page`."""
    reader.page.locator(f'[data-testid=page][data-page="{name}"][data-ready="1"]').wait_for()
