"""The two evaluators of OpenCompass's NeedleBench."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from needlemap.errors import SettingsError
from needlemap.scorers.edit import as_coded, edit_score, keyword_score


def score(
    predictions: Sequence[str],
    references: Sequence[str],
    keyword: str | Sequence[str] | None = None,
    trim: bool = False,
) -> dict[str, Any]:
    """{"score": mean, "details": [{"pred", "answer", "edit_distance", "score"}]} in 0..100; 0
    for none.

    keyword None: the single needle's evaluator; references are taken as they are, asterisks
    included. keyword given, one for all or one per reference: the multi needle's. 100 where
    the prediction without its whitespace holds it, else a fifth of the edit-distance score; a
    reference that ends in '*' + keyword is unpacked. trim: cut predictions to about the
    reference's length (the keyword is sought in the whole). Different lengths give {"error":
    ...}, as in the original.
    """
    if len(predictions) != len(references):
        return {"error": "predictions and references have different lengths"}
    keywords = _keywords(keyword, len(references))
    details = [_detail(*row, trim) for row in zip(predictions, references, keywords, strict=True)]
    total = 0.0
    for detail in details:
        total += detail["score"]
    return {"score": total / len(details) if details else 0, "details": details}


def _keywords(keyword: str | Sequence[str] | None, count: int) -> Sequence[str | None]:
    if keyword is None or isinstance(keyword, str):
        return [keyword] * count
    if len(keyword) != count:
        raise SettingsError(
            f"{len(keyword)} keywords for {count} references. Give one, or one per reference."
        )
    return keyword


def _detail(prediction: str, reference: str, keyword: str | None, trim: bool) -> dict[str, Any]:
    answer = reference if keyword is None else reference.removesuffix(f"*{keyword}")
    said, wanted, distance, native = edit_score(prediction, answer, trim)
    if keyword is not None:
        _, missing = as_coded(prediction, [keyword])
        native = keyword_score(native, has_keywords=not missing)
    return {"pred": said, "answer": wanted, "edit_distance": distance, "score": native}
