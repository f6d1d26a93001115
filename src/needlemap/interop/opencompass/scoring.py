"""Score as the two evaluators of OpenCompass's NeedleBench do."""

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
    """Return {"score": mean, "details": [{"pred", "answer", "edit_distance", "score"}]}.

    Scores are in 0..100, and the mean of no predictions is 0. If predictions and references differ
    in number, return {"error": ...}, as the original does.

    keyword: None for the single needle's evaluator, which takes references as they are, with their
    asterisks. One for all references, or one for each, stands for the multi needle's evaluator: 100
    if the prediction without its whitespace holds the keyword, else a fifth of the edit-distance
    score; '*' + keyword at the end of a reference does not count. trim: cut predictions to about
    the reference's length; the keyword is still sought in the whole. Raises SettingsError if
    keywords and references differ in number.
    """
    if len(predictions) != len(references):
        return {"error": "predictions and references have different lengths"}

    keywords = _keywords(keyword, len(references))
    details = [
        _detail(prediction, reference, keyword=row_keyword, trim=trim)
        for prediction, reference, row_keyword in zip(
            predictions, references, keywords, strict=True
        )
    ]
    # The original adds in this order; sum() rounds differently from Python 3.12 on.
    total = 0.0
    for detail in details:
        total += detail["score"]
    mean = total / len(details) if details else 0
    return {"score": mean, "details": details}


def _keywords(keyword: str | Sequence[str] | None, count: int) -> Sequence[str | None]:
    if keyword is None or isinstance(keyword, str):
        return [keyword] * count
    if len(keyword) != count:
        raise SettingsError(
            f"{len(keyword)} keywords for {count} references. Give one, or one per reference."
        )
    return keyword


def _detail(prediction: str, reference: str, *, keyword: str | None, trim: bool) -> dict[str, Any]:
    answer = reference
    if keyword is not None:
        answer = reference.removesuffix(f"*{keyword}")
    compared, compared_answer, distance, native = edit_score(prediction, answer, trim)
    if keyword is not None:
        _, missing = as_coded(prediction, [keyword])
        native = keyword_score(native, has_keywords=not missing)
    return {
        "pred": compared,
        "answer": compared_answer,
        "edit_distance": distance,
        "score": native,
    }
