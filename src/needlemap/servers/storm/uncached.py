"""Send requests that no cache helps with, as far as the server lets a request say so."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from needlemap.errors import Failure, Unmeasured
from needlemap.models import Answer, Decoding, Model
from needlemap.models.call import call_model
from needlemap.servers.wrapped import WrappedModel

if TYPE_CHECKING:
    from needlemap.asking.campaign import MakeModel
    from needlemap.prompts import Prompt
    from needlemap.settings import Settings


class Uncached(WrappedModel):
    """Another model, whose requests say that no cached prefix is to be used.

    llama.cpp reads `cache_prompt`. vLLM and SGLang keep the prefixes of each `cache_salt` apart.
    """

    def __init__(self, name: str, *, model: Model, salt: str) -> None:
        super().__init__(name, model=model)
        self._salt, self._count = salt, 0
        self._takes_fields = bool(salt)

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Return an answer that no cache helped with.

        If the server refuses the fields for that, this and later requests have none. Raises
        Unmeasured.
        """
        if self._takes_fields:
            self._count += 1
            fields = {"cache_prompt": False, "cache_salt": f"{self._salt}-{self._count}"}
            request = {**fields, **decoding.request}
            try:
                return await call_model(self._model, prompt, replace(decoding, request=request))
            except Unmeasured as error:
                if error.failure is not Failure.REJECTED:
                    raise
                self._takes_fields = False
        return await call_model(self._model, prompt, decoding)


def uncached_model_maker(make: MakeModel, salt: str) -> MakeModel:
    """Return a function that makes models whose requests no cache can serve.

    make: makes the models. salt: the start of the salts that requests carry; '' to send no fields.
    """

    def make_uncached(settings: Settings) -> Model:
        return Uncached(settings.model_name, model=make(settings), salt=salt)

    return make_uncached
