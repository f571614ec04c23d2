-- ---
-- title: Prefill times over time
-- question: How long did prefill take for each length, in each stretch of time?
-- parameters:
--   from: {type: instant, default: null, is: requests received at or after}
--   to: {type: instant, default: null, is: requests received before}
--   bucket: {type: duration, default: 1m, is: the length of a row's time}
--   floor_us_per_token: {type: number, default: 1, is: "the least time for a token that is not cached, microseconds"}
-- columns:
--   t: "the beginning of the row's time, by when requests were received"
--   bucket_tokens: {is: "tokens that were not cached: from this power of two up to twice of it", unit: tokens}
--   requests: {is: requests of that length, unit: requests}
--   p5_ms: {is: the fastest twentieth took at most, unit: ms}
--   p50_ms: {is: half of them took at most, unit: ms}
--   p95_ms: {is: all but the slowest twentieth took at most, unit: ms}
--   below_floor: {is: requests that took less than their own floor, unit: requests}
-- rows: fact
-- parts: [part_asked_for]
-- since: "0.3"
-- ---
-- From received to first token at prefill, as in fast-prefill. Percentiles of few requests are their extremes: `requests` says how few.

WITH timed AS (
    SELECT received, greatest(prompt_tokens - coalesce(cached_tokens, 0), 1) AS tokens, date_diff('microsecond', received, first_token) / 1000.0 AS ms
    FROM asked_for
    WHERE role = 'prefill' AND first_token IS NOT NULL AND received IS NOT NULL
      AND ($from IS NULL OR received >= $from::TIMESTAMP) AND ($to IS NULL OR received < $to::TIMESTAMP)
)
SELECT time_bucket($bucket, received, TIMESTAMP '2000-01-01') AS t, CAST(pow(2, floor(log2(tokens))) AS BIGINT) AS bucket_tokens,
       count(*) AS requests, round(quantile_cont(ms, 0.05), 3) AS p5_ms, round(quantile_cont(ms, 0.5), 3) AS p50_ms, round(quantile_cont(ms, 0.95), 3) AS p95_ms,
       count(*) FILTER (WHERE ms < tokens * $floor_us_per_token / 1000.0) AS below_floor
FROM timed
GROUP BY ALL
ORDER BY bucket_tokens, t;
