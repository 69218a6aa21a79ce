"""What is done on a page, and what is noted of it."""

from __future__ import annotations

from playwright.sync_api import Page

DESKTOP, SMALL = (1440, 900), (700, 620)


class Figures:
    """What was measured, told when all is done."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str]] = []

    def add(self, name: str, text: str) -> None:
        self.rows.append((name, text))


def boxes(page: Page) -> int:
    found: int = page.evaluate("weft.camera.scene.boxes.length")
    return found


def settle(page: Page) -> None:
    """Wait until nothing moves."""
    page.wait_for_function("!weft.camera.motion")
    page.wait_for_timeout(450)


def click_item(page: Page, where: str) -> None:
    """Click the title of the box that a JavaScript condition on ``item`` holds for."""
    settle(page)
    at = page.evaluate(
        """(where) => {
            const test = new Function("item", `return ${where}`);
            const box = weft.camera.scene.boxes.find((b) => test(b.item));
            const { x, y, k } = weft.camera.at;
            const frame = weft.canvas.getBoundingClientRect();
            const down = box.open ? 14 : box.h / 2;
            const right = box.open ? 30 : box.w / 2;
            return [frame.left + (box.x + right - x) * k, frame.top + (box.y + down - y) * k];
        }""",
        where,
    )
    page.mouse.click(*at)
    settle(page)
