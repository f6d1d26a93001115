"""Send a model its own answers as prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from needlemap.models import Answer, Decoding, Model
from needlemap.servers.wrapped import WrappedModel

if TYPE_CHECKING:
    from needlemap.asking.campaign import MakeModel
    from needlemap.prompts import Prompt
    from needlemap.settings import Settings


class Prefilling(WrappedModel):
    """Sends another model answers as prompts, where a reference answer would be scored."""

    async def force(self, prompt: Prompt, answer: str, decoding: Decoding) -> Answer:
        """Return the log-probability of the answer's last token by the other model.

        Raises Unmeasured if it cannot be had.
        """
        return await self._model.prefill(prompt, answer, decoding)


def prefilling(make: MakeModel) -> MakeModel:
    """Return a function that makes such a model of what another function makes."""

    def make_prefilling(settings: Settings) -> Model:
        return Prefilling(settings.model_name, model=make(settings))

    return make_prefilling
