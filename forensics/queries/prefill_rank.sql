-- ---
-- title: Rank of one prefill
-- question: Where does the prefill of this response stand among all of its length?
-- parameters:
--   rid: {type: text, is: its response}
-- columns:
--   worker: the worker that prefilled it
--   received: when it asked for that
--   bucket_tokens: {is: "tokens that were not cached: from this power of two up to twice of it", unit: tokens}
--   ms: {is: what it took, unit: ms}
--   requests: {is: "requests of that length, itself among them", unit: requests}
--   percentile: {is: "how many of a hundred were faster, half of those that took as long among them"}
-- rows: fact
-- parts: [part_asked_for]
-- since: "0.3"
-- ---
-- From received to first token at prefill, as in fast-prefill. A rank accuses nobody: of few requests it says little.

WITH timed AS (
    SELECT rid, worker, received, greatest(prompt_tokens - coalesce(cached_tokens, 0), 1) AS tokens,
           date_diff('microsecond', received, first_token) / 1000.0 AS ms
    FROM asked_for
    WHERE role = 'prefill' AND first_token IS NOT NULL AND received IS NOT NULL
),
bucketed AS (SELECT *, CAST(pow(2, floor(log2(tokens))) AS BIGINT) AS bucket FROM timed)
SELECT mine.worker, mine.received, mine.bucket AS bucket_tokens, round(mine.ms, 3) AS ms, count(*) AS requests,
       round(100.0 * (count(*) FILTER (WHERE b.ms < mine.ms) + 0.5 * count(*) FILTER (WHERE b.ms = mine.ms)) / count(*), 1) AS percentile
FROM bucketed AS mine
JOIN bucketed AS b USING (bucket)
WHERE mine.rid = $rid
GROUP BY mine.worker, mine.received, mine.bucket, mine.ms
ORDER BY mine.received, mine.worker;
