"""preset.order: of the forecast of what is late."""

from __future__ import annotations

ORDERS = ("0 (as it is)", "1 (a line)", "2 (a parabola)")


def check_order(order: int, highest: int = 1) -> None:
    """Raise ValueError, with what to type, for a forecast that a method does not have."""
    if not 0 <= order <= highest:
        *others, last = ORDERS[: highest + 1]
        raise ValueError(f"preset.order={order}: use {', '.join(others)} or {last}")
