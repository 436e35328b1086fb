"""Acts on any page, and what it shows once it has been drawn.

The only place where tests in a browser may read a list without waiting for a value: elsewhere `expect` waits for it.
"""

from playwright.sync_api import Locator, Page, expect


def settle(page: Page) -> None:
    """Wait until a page has been loaded, its scripts have run, and none of its parts is being loaded."""
    page.wait_for_load_state()
    expect(page.locator(".htmx-request")).to_have_count(0)


def each(found: Locator) -> list[Locator]:
    """The elements that are found once the page is settled; there is at least one."""
    expect(found.first).to_be_attached()
    settle(found.page)
    return found.all()


def number_of(found: Locator) -> int:
    """How many elements are found once the page is settled, none included."""
    settle(found.page)
    return found.count()


def ids_of(found: Locator) -> list[str]:
    return [one.get_attribute("id") or "" for one in each(found)]


def texts_of(found: Locator) -> list[str]:
    return [one.inner_text() for one in each(found)]


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def confirm_all(page: Page) -> None:
    """Tick every box of a page that asks for confirmations; it may ask for none."""
    boxes = page.locator("input[name=yes]")
    for number in range(number_of(boxes)):
        boxes.nth(number).check()
