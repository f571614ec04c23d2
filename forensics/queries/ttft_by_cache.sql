-- ---
-- title: Time to first token by cache
-- question: How long did clients wait for their first token, by how much of their prompt was cached?
-- parameters:
--   from: {type: instant, default: null, is: requests received at or after}
--   to: {type: instant, default: null, is: requests received before}
-- columns:
--   cached: "share of the prompt that need not be computed: none, up to a half, more, nearly all (from nine tenths)"
--   bucket_tokens: {is: "prompt tokens: from this power of two up to twice of it", unit: tokens}
--   requests: {is: requests, unit: requests}
--   p5_ms: {is: the fastest twentieth waited at most, unit: ms}
--   p50_ms: {is: half of them waited at most, unit: ms}
--   p95_ms: {is: all but a twentieth waited at most, unit: ms}
-- rows: fact
-- parts: [part_asked_for, part_answers]
-- since: "0.2"
-- ---
-- From received at the gateway (or decode, where the gateway's row is not there) to decode's first token.

WITH timed AS (
    SELECT coalesce(cached_tokens, 0) / greatest(prompt_tokens, 1) AS share, CAST(pow(2, floor(log2(greatest(prompt_tokens, 1)))) AS BIGINT) AS bucket,
           date_diff('microsecond', coalesce(at_gateway, at_decode), first_token) / 1000.0 AS ms
    FROM answers
    WHERE first_token IS NOT NULL AND coalesce(at_gateway, at_decode) IS NOT NULL
      AND ($from IS NULL OR started >= $from::TIMESTAMP) AND ($to IS NULL OR started < $to::TIMESTAMP)
)
SELECT CASE WHEN share = 0 THEN '0 none' WHEN share <= 0.5 THEN '1 up to a half' WHEN share < 0.9 THEN '2 more' ELSE '3 nearly all' END AS cached,
       bucket AS bucket_tokens, count(*) AS requests, round(quantile_cont(ms, 0.05), 3) AS p5_ms, round(quantile_cont(ms, 0.5), 3) AS p50_ms,
       round(quantile_cont(ms, 0.95), 3) AS p95_ms
FROM timed
GROUP BY ALL
ORDER BY cached, bucket;
