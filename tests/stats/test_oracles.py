"""The statistics beside a reference library, on random inputs."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from needlemap.stats.curves import agreement_draws
from needlemap.stats.difference import holm, paired_difference, sign_flip
from needlemap.stats.effective import effective_length, parse_rule
from needlemap.stats.exact import (
    binomial_tail,
    chance_of_more,
    lost_by_chance,
    lowest_rate,
    mcnemar,
    strata_tail,
)
from needlemap.stats.intervals import (
    cluster_mean,
    robust_error,
    t_cdf,
    t_quantile,
    tango,
    trials_needed,
    wilson,
)

stats = pytest.importorskip("scipy.stats", reason="pip install '.[test]'")
optimize = pytest.importorskip("scipy.optimize", reason="pip install '.[test]'")
REASON = "pip install '.[test]'"


@pytest.fixture(params=range(20))
def seeded(request: pytest.FixtureRequest) -> np.random.Generator:
    """Twenty different random inputs."""
    return np.random.default_rng(request.param)


def test_wilson_intervals(seeded):
    proportion = pytest.importorskip("statsmodels.stats.proportion", reason=REASON)
    n = int(seeded.integers(1, 2_000))
    hits = int(seeded.integers(0, n + 1))
    assert wilson(hits, n) == pytest.approx(
        proportion.proportion_confint(hits, n, method="wilson"), abs=1e-9
    )
    found = stats.binomtest(hits, n).proportion_ci(method="wilson")
    assert wilson(hits, n) == pytest.approx((found.low, found.high), abs=1e-9)


def test_students_t(seeded):
    dof, share, t = int(seeded.integers(1, 400)), seeded.uniform(0.5, 0.9999), seeded.uniform(0, 8)
    assert t_quantile(share, dof) == pytest.approx(stats.t.ppf(share, dof), rel=1e-7, abs=1e-7)
    assert t_cdf(t, dof) == pytest.approx(stats.t.cdf(t, dof), abs=1e-10)


def test_cluster_robust_errors(seeded):
    api = pytest.importorskip("statsmodels.api", reason=REASON)
    sizes = seeded.integers(1, 30, size=seeded.integers(5, 20))
    of = np.repeat(np.arange(len(sizes)), sizes)
    scores = np.clip(seeded.normal(0.6, 0.2, len(sizes))[of] + seeded.normal(0, 0.3, len(of)), 0, 1)
    fitted = api.OLS(scores, np.ones(len(of))).fit(
        cov_type="cluster", cov_kwds={"groups": of, "use_correction": False}
    )
    uncorrected = float(fitted.bse[0])
    found = robust_error(np.bincount(of, scores), sizes.astype(float))
    assert found == pytest.approx(uncorrected * (len(sizes) / (len(sizes) - 1)) ** 0.5)


def test_the_interval_of_clustered_means_is_wilson_at_the_effective_n(seeded):
    proportion = pytest.importorskip("statsmodels.stats.proportion", reason=REASON)
    scores = (seeded.random((8, 30)) < seeded.beta(3, 2, (8, 1))).astype(float)
    mean = cluster_mean(scores)
    assert mean is not None
    t, n = stats.t.ppf(0.975, 7), mean.n / mean.design_effect
    alpha = 2 * stats.norm.sf(t)  # Wilson with t in the place of 1.96
    expected = proportion.proportion_confint(mean.score * n, n, alpha=alpha, method="wilson")
    assert (mean.low, mean.high) == pytest.approx(expected, abs=1e-6)


def test_exact_mcnemar(seeded):
    tables = pytest.importorskip("statsmodels.stats.contingency_tables", reason=REASON)
    lost, gained = (int(count) for count in seeded.integers(0, 60, 2))
    expected = tables.mcnemar([[100, lost], [gained, 50]], exact=True).pvalue
    assert mcnemar(lost, gained) == pytest.approx(expected)


def test_tangos_interval_ends_where_the_score_test_does(seeded):
    """The likeliest shares with a given net loss are searched for, and not solved for."""
    n = int(seeded.integers(10, 500))
    lost, gained = (int(count) for count in seeded.integers(0, n // 3, 2))
    for end, sign in zip(tango(lost, gained, n), (-1, 1), strict=True):
        least, most = max(0.0, end), (1 + end) / 2  # shares gained with which all three are shares
        found = optimize.minimize_scalar(
            lambda share, loss=-end: -_likelihood(share + loss, share, lost, gained, n),
            bounds=(least, most), method="bounded", options={"xatol": 1e-12},
        )  # fmt: skip
        variance = n * (2 * found.x - end - end**2)
        assert (gained - lost - n * end) / variance**0.5 == pytest.approx(-sign * 1.95996, abs=2e-3)


def _likelihood(p_lost: float, p_gained: float, lost: int, gained: int, n: int) -> float:
    shares = np.clip([p_lost, p_gained, 1 - p_lost - p_gained], 1e-300, 1)
    return float(np.dot((lost, gained, n - lost - gained), np.log(shares)))


@pytest.mark.parametrize(
    "seeded",
    [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 20))],
    indirect=True,
)
def test_holms_correction(seeded):
    tests = pytest.importorskip("statsmodels.stats.multitest", reason=REASON)
    values = seeded.uniform(0, 0.2, int(seeded.integers(1, 20))).tolist()
    assert holm(values) == pytest.approx(tests.multipletests(values, method="holm")[1].tolist())


@pytest.mark.parametrize("clusters", [4, 9, 12])
def test_sign_flips(seeded, clusters):
    totals = seeded.normal(0.3, 1, clusters)
    expected = stats.permutation_test(
        (totals,), np.sum, permutation_type="samples", n_resamples=inf, alternative="two-sided"
    ).pvalue
    assert sign_flip(totals) == pytest.approx(expected)


def test_the_interval_of_independent_pairs_is_that_of_a_t_test_where_there_are_many(seeded):
    """One pair a haystack, many of them: there the adjusted interval and Student's are one."""
    first = (seeded.random((4_000, 1)) < 0.7).astype(float)
    second = (seeded.random((4_000, 1)) < 0.6).astype(float)
    found = paired_difference(first, second)
    assert found is not None
    expected = stats.ttest_rel(second[:, 0], first[:, 0]).confidence_interval()
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-3)


def test_graded_pairs_have_the_interval_of_a_t_test_over_haystacks(seeded):
    first = seeded.random((40, 10))
    second = np.clip(first - 0.05 + seeded.normal(0, 0.1, (40, 1)), 0, 1)
    found = paired_difference(first, second)
    assert found is not None
    expected = stats.ttest_1samp((second - first).mean(axis=1), 0).confidence_interval()
    width = expected.high - expected.low
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.12 * width)


def test_doubt_where_all_agree_is_the_jeffreys_posterior(seeded):
    n = int(seeded.integers(5, 500))
    drawn = agreement_draws(float(n), n, 20_000)
    shares = np.array([0.025, 0.5, 0.9])
    assert np.quantile(drawn, shares) == pytest.approx(
        stats.beta.ppf(shares, n + 0.5, 0.5), abs=0.01
    )


@pytest.mark.parametrize(("drop", "share"), [(0.05, None), (0.05, 0.2), (0.1, 0.3), (0.02, 0.06)])
def test_the_number_of_trials_gives_the_power_that_is_promised(drop, share):
    """The power of McNemar's test with so many pairs, by its normal approximation in SciPy's
    terms."""
    n = trials_needed(drop, share)
    discordant = drop * 7 / 5 if share is None else share
    spread = (discordant - drop**2) ** 0.5
    z = (n**0.5 * drop - stats.norm.ppf(0.99) * discordant**0.5) / spread
    assert stats.norm.cdf(z) == pytest.approx(0.8, abs=0.01)


def test_the_bootstrap_over_haystacks(seeded, cube):
    """One length, so that the rule `auc` is the mean score; tails widened for 12 haystacks
    (Hesterberg)."""
    scores = seeded.beta(5, 2, (12, 1, 6))
    found = effective_length(cube(scores.tolist(), (1_000,)), parse_rule("auc"))
    assert found is not None
    tail = stats.norm.cdf(-((12 / 11) ** 0.5) * stats.t.ppf(0.975, 11))
    expected = stats.bootstrap(
        (scores.mean(axis=(1, 2)),), np.mean, n_resamples=9_999, method="percentile",
        confidence_level=1 - 2 * tail, rng=np.random.default_rng(1),
    ).confidence_interval  # fmt: skip
    width = expected.high - expected.low
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.15 * width)


def test_tails_are_exact():
    assert lost_by_chance(7, 2) == pytest.approx(stats.binom.sf(6, 9, 0.5))
    assert binomial_tail(4, 60, 0.05) == pytest.approx(stats.binom.sf(3, 60, 0.05))
    alone = stats.hypergeom(16, 5, 4).sf(2)
    assert strata_tail([(16, 4, 5, 3)]) == pytest.approx(alone)
    both = sum(
        stats.hypergeom(16, 5, 4).pmf(i) * stats.hypergeom(12, 3, 6).pmf(j)
        for i in range(5)
        for j in range(4)
        if i + j >= 5
    )
    assert strata_tail([(16, 4, 5, 3), (12, 6, 3, 2)]) == pytest.approx(both)


def test_exact_tests_of_two_counts(seeded):
    n, of = (int(each) for each in seeded.integers(1, 60, 2))
    hits, others = int(seeded.integers(0, n + 1)), int(seeded.integers(0, of + 1))
    table = [[hits, n - hits], [others, of - others]]
    assert chance_of_more(hits, n, others, of) == pytest.approx(
        stats.fisher_exact(table, alternative="greater").pvalue
    )
    exact = stats.binomtest(hits, n).proportion_ci(0.95, method="exact")
    assert lowest_rate(hits, n) == pytest.approx(exact.low, abs=1e-9)
