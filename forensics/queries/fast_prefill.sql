-- ---
-- title: Suspiciously fast prefill
-- question: Which lengths were prefilled faster than they can be, against a baseline and a physical floor?
-- parameters:
--   from: {type: instant, default: null, is: requests received at or after}
--   to: {type: instant, default: null, is: requests received before}
--   baseline_to: {type: instant, default: null, is: "requests received before are the baseline; none: all others of the same length"}
--   floor_us_per_token: {type: number, default: 1, is: "the least time for a token that is not cached, microseconds"}
--   factor: {type: number, default: 4, is: how many times faster than the baseline is suspicious}
-- columns:
--   bucket_tokens: {is: "tokens that were not cached: from this power of two up to twice of it", unit: tokens}
--   requests: {is: requests of that length, unit: requests}
--   p5_ms: {is: the fastest twentieth took at most, unit: ms}
--   p50_ms: {is: half of them took at most, unit: ms}
--   p95_ms: {is: all but the slowest twentieth took at most, unit: ms}
--   mean_ms: {is: what one took on average, unit: ms}
--   sum_ms: {is: what all of them took together, unit: ms}
--   baseline_p5_ms: {is: the same of the baseline, unit: ms}
--   baseline_p10_ms: {is: a tenth of the baseline took at most, unit: ms}
--   baseline_p90_ms: {is: all but the slowest tenth of the baseline took at most, unit: ms}
--   floor_ms: {is: the least that so many tokens can take, unit: ms}
--   below_floor: {is: requests that took less than their own floor, unit: requests}
--   suspicious: {is: "`yes` where there are such, or p5 is so many times below the baseline's"}
--   fastest: {is: the fastest requests below their floor, shown: false}
-- rows: fact
-- parts: [part_asked_for]
-- since: "0.2"
-- version: 2
-- ---
-- From received to first token at prefill. Speed alone accuses nobody: short or cached prompts are fast rightly.

WITH timed AS (
    SELECT rid, received, greatest(prompt_tokens - coalesce(cached_tokens, 0), 1) AS tokens, date_diff('microsecond', received, first_token) / 1000.0 AS ms
    FROM asked_for
    WHERE role = 'prefill' AND first_token IS NOT NULL AND received IS NOT NULL
),
bucketed AS (SELECT *, CAST(pow(2, floor(log2(tokens))) AS BIGINT) AS bucket, tokens * $floor_us_per_token / 1000.0 AS floor FROM timed),
inside AS (
    SELECT * FROM bucketed WHERE ($from IS NULL OR received >= $from::TIMESTAMP) AND ($to IS NULL OR received < $to::TIMESTAMP)
),
base AS (
    SELECT bucket, quantile_cont(ms, 0.05) AS p5, quantile_cont(ms, 0.1) AS p10, quantile_cont(ms, 0.9) AS p90 FROM bucketed
    WHERE CASE WHEN $baseline_to IS NULL THEN ms >= floor ELSE received < $baseline_to::TIMESTAMP END GROUP BY bucket
)
SELECT i.bucket AS bucket_tokens, count(*) AS requests, round(quantile_cont(i.ms, 0.05), 3) AS p5_ms, round(quantile_cont(i.ms, 0.5), 3) AS p50_ms,
       round(quantile_cont(i.ms, 0.95), 3) AS p95_ms, round(avg(i.ms), 3) AS mean_ms, round(sum(i.ms), 3) AS sum_ms,
       round(max(b.p5), 3) AS baseline_p5_ms, round(max(b.p10), 3) AS baseline_p10_ms,
       round(max(b.p90), 3) AS baseline_p90_ms, round(i.bucket * $floor_us_per_token / 1000.0, 3) AS floor_ms,
       count(*) FILTER (WHERE i.ms < i.floor) AS below_floor,
       CASE WHEN count(*) FILTER (WHERE i.ms < i.floor) > 0 OR quantile_cont(i.ms, 0.05) * $factor < max(b.p5) THEN 'yes' ELSE 'no' END AS suspicious,
       list(i.rid ORDER BY i.ms, i.rid) FILTER (WHERE i.ms < i.floor) AS fastest
FROM inside AS i
LEFT JOIN base AS b USING (bucket)
GROUP BY i.bucket
ORDER BY i.bucket;
