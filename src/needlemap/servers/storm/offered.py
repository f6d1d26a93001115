"""What a server offers beside answers: slots that are saved to files, a second model."""

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
from needlemap.untrusted import clean_count

if TYPE_CHECKING:
    from needlemap.asking.campaign import MakeModel
    from needlemap.prompts import Prompt
    from needlemap.servers.storm.act import How
    from needlemap.settings import Settings

SLOT = 0  # llama.cpp's slot that is saved
_OK = 200


def act_on_slot(base_url: str, action: str, name: str, sent: Sent) -> int:
    """Have llama.cpp save a slot to a file of this name, or restore it; the reply's status. Raises
    Unmeasured."""
    body = json.dumps({"filename": name}).encode()
    status, _ = get(_root(base_url), f"/slots/{SLOT}?action={action}", sent, body)
    return status


def saves_slots(base_url: str, sent: Sent) -> bool:
    """Return True if a server saves its slots: llama.cpp does, with --slot-save-path."""
    with suppress(NeedlemapError):
        _, itself = get(_root(base_url), "/props", sent)
        if clean_count(itself.get("total_slots")):
            return act_on_slot(base_url, "save", "needlemap-storm.bin", sent) == _OK
    return False


def _root(base_url: str) -> str:
    return VERSIONED.sub("", base_url.rstrip("/"))


def second_model(base_url: str, model: str, sent: Sent) -> str:
    """Return another model that a server lists and that answers; '' if there is none."""
    with suppress(NeedlemapError):
        for name in list_models(base_url, sent).names[:3]:
            if name == model:
                continue
            asked = {"model": name, "messages": [{"role": "user", "content": "Hi"}]}
            body = json.dumps({**asked, "max_tokens": 1}).encode()
            if get(base_url, "/chat/completions", sent, body)[0] == _OK:
                return name
    return ""


class Slotted(Model):
    """Another model, which is asked in one slot of llama.cpp; that is saved behind the answer, or
    restored before the request."""

    def __init__(self, name: str, *, model: Model, how: str, act: Callable[[str], int]) -> None:
        super().__init__(name)
        self._model, self._how, self._act = model, how, act

    async def open(
        self, most: int, show_state: Callable[[str], None], show_event: Callable[[str], None]
    ) -> None:
        """Open the other model."""
        await self._model.open(most, show_state, show_event)

    async def answer(self, prompt: Prompt, decoding: Decoding) -> Answer:
        """Ask in the slot. Raises Unmeasured, also if the slot is not saved or restored."""
        if self._how == "restore":
            await self._acted("restore")
        request = {**decoding.request, "id_slot": SLOT}
        answer = await call_model(self._model, prompt, replace(decoding, request=request))
        if self._how == "save":
            await self._acted("save")
        return answer

    async def _acted(self, action: str) -> None:
        status = await asyncio.to_thread(self._act, action)
        if status != _OK:
            raise Unmeasured(Failure.SERVER, f"The server answers {status} to {action} a slot.")

    async def close(self) -> None:
        """Close the other model."""
        await self._model.close()


def slotted(make: MakeModel, how: How, name: str, sent: Sent) -> MakeModel:
    """Return what makes such a model of the settings of another. name: of the slot's file."""

    def made(settings: Settings) -> Model:
        def act(action: str) -> int:
            return act_on_slot(settings.base_url or "", action, name, sent)

        return Slotted(settings.model_name, model=make(settings), how=how, act=act)

    return made


def other(make: MakeModel, name: str) -> MakeModel:
    """Return what makes another model of the same server."""

    def made(settings: Settings) -> Model:
        return make(settings.model_copy(update={"model": f"{settings.backend}/{name}"}))

    return made
