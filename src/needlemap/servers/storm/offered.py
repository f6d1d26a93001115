"""Use what some servers offer in addition: slots that are saved to files, a second model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from needlemap.errors import Failure, NeedlemapError, Unmeasured
from needlemap.http import VERSIONED, Sent
from needlemap.http.served import get, list_models
from needlemap.models import Answer, Decoding, Model
from needlemap.models.call import call_model
from needlemap.servers.wrapped import WrappedModel
from needlemap.untrusted import clean_count

if TYPE_CHECKING:
    from needlemap.asking.campaign import MakeModel
    from needlemap.prompts import Prompt
    from needlemap.servers.storm.act import How
    from needlemap.settings import Settings

# llama.cpp's slot that is saved.
SLOT = 0
# Listed models that are tried as a second one.
MOST_TRIED = 3
_OK = 200


def act_on_slot(base_url: str, action: str, name: str, sent: Sent) -> int:
    """Have llama.cpp save a slot to a file of this name, or restore it from there.

    Return the HTTP status of the reply. Raises Unmeasured if there is none.
    """
    body = json.dumps({"filename": name}).encode()
    status, _ = get(_root(base_url), f"/slots/{SLOT}?action={action}", sent, body)
    return status


def saves_slots(base_url: str, sent: Sent) -> bool:
    """Return True if a server can save a slot, as llama.cpp can with --slot-save-path."""
    with suppress(NeedlemapError):
        _, properties = get(_root(base_url), "/props", sent)
        if clean_count(properties.get("total_slots")):
            return act_on_slot(base_url, "save", "needlemap-storm.bin", sent) == _OK
    return False


def _root(base_url: str) -> str:
    return VERSIONED.sub("", base_url.rstrip("/"))


def second_model(base_url: str, model: str, sent: Sent) -> str:
    """Return another model that a server lists and that answers, or '' if there is none."""
    with suppress(NeedlemapError):
        for name in list_models(base_url, sent).names[:MOST_TRIED]:
            if name == model:
                continue
            request = {
                "model": name,
                "messages": [{"role": "user", "content": "Hi"}],
                "max_tokens": 1,
            }
            body = json.dumps(request).encode()
            status, _ = get(base_url, "/chat/completions", sent, body)
            if status == _OK:
                return name
    return ""


class Slotted(WrappedModel):
    """Another model, whose requests go to one slot of llama.cpp.

    The slot is saved after the answer, or restored before the request.
    """

    def __init__(self, name: str, *, model: Model, how: str, act: Callable[[str], int]) -> None:
        super().__init__(name, model=model)
        self._how, self._act = how, act

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Return the answer in the slot.

        Raises Unmeasured if there is none, or if the slot could not be saved or restored.
        """
        if self._how == "restore":
            await self._act_on_slot("restore")
        request = {**decoding.request, "id_slot": SLOT}
        answer = await call_model(self._model, prompt, replace(decoding, request=request))
        if self._how == "save":
            await self._act_on_slot("save")
        return answer

    async def _act_on_slot(self, action: str) -> None:
        status = await asyncio.to_thread(self._act, action)
        if status != _OK:
            raise Unmeasured(Failure.SERVER, f"The server answers {status} to {action} a slot.")


def slot_model_maker(make: MakeModel, how: How, name: str, sent: Sent) -> MakeModel:
    """Return a maker of models in a slot. make: of the models alone. name: of the slot's file."""

    def make_in_slot(settings: Settings) -> Model:
        def act(action: str) -> int:
            return act_on_slot(settings.base_url or "", action, name, sent)

        return Slotted(settings.model_name, model=make(settings), how=how, act=act)

    return make_in_slot


def other_model_maker(make: MakeModel, name: str) -> MakeModel:
    """Return a maker of another model of the same server. name: the server's name of it."""

    def make_other(settings: Settings) -> Model:
        return make(settings.model_copy(update={"model": f"{settings.backend}/{name}"}))

    return make_other
