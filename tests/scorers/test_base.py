"""What every scorer gives."""

from __future__ import annotations

from math import nan

import pytest

from needlemap.scorers.base import Score


@pytest.mark.parametrize("share", [-0.01, 1.01, nan])
def test_a_share_outside_0_to_1_is_a_slip_of_the_scorer_and_no_score(share):
    with pytest.raises(ValueError, match=r"lies in \[0, 1\]"):
        Score(share, 1.0)
