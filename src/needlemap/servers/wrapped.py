"""Reach a model through another one, which sends its requests in a way of its own."""

from __future__ import annotations

from collections.abc import Callable

from needlemap.models import Model


class WrappedModel(Model):
    """Opens and closes another model. A subclass sends it requests."""

    def __init__(self, name: str, *, model: Model) -> None:
        super().__init__(name)
        self._model = model

    async def open(
        self, most: int, show_state: Callable[[str], None], show_event: Callable[[str], None]
    ) -> None:
        """Open the other model."""
        await self._model.open(most, show_state, show_event)

    async def close(self) -> None:
        """Close the other model."""
        await self._model.close()
