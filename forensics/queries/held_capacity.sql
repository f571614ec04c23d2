-- ---
-- title: Held capacity
-- question: How much of a pool do aborts hold, does rate x time x pages explain it, and when would it run out?
-- parameters:
--   bucket: {type: duration, default: 10s, is: the length of a row's time}
--   abort_factor: {type: number, default: 1, is: "what if aborts came so many times as often"}
--   hold_factor: {type: number, default: 1, is: "what if each hold lasted so many times as long"}
-- columns:
--   worker: whose pool
--   pool: the component
--   t: the beginning of the row's time
--   holds_per_s: {is: holds that began, unit: 1/s}
--   hold_s: {is: how long those lasted on average; open ones until the end of the record, unit: s}
--   pages_each: {is: pages of each on average, unit: pages}
--   expected: {is: "rate x time x pages, of the holds that began within one mean hold time before", unit: pages}
--   measured: {is: "held on average, by the gauges; null = no gauge", unit: pages}
--   quarantined: {is: "held past their deadline, by the gauges", unit: pages}
--   pool_pages: {is: the whole pool, unit: pages}
--   free: {is: "least free, by the gauges", unit: pages}
--   full_in_s: {is: "at this rate of growth the pool has no free page in; null = it does not grow", unit: s}
--   what_if: {is: expected with the factors given, unit: pages}
-- rows: fact
-- parts: [part_holds]
-- since: "0.2"
-- ---
-- Little's law: pages held = abort rate x hold time x pages per abort.

WITH
beats AS (
    SELECT worker, pool, time_bucket($bucket, t, TIMESTAMP '2000-01-01') AS bucket, avg(held) AS measured, max(quarantined) AS quarantined, min(free) AS free,
           arg_max(free, t) AS free_last, arg_min(free, t) AS free_first
    FROM gauges WHERE op = 'sample' GROUP BY ALL
),
ends AS (SELECT worker, max(t) AS last FROM gauges GROUP BY worker),
held AS (
    SELECT h.*, date_diff('microsecond', h.since, coalesce(h.until, e.last)) / 1e6 AS seconds
    FROM holds AS h LEFT JOIN ends AS e USING (worker)
),
begun AS (
    SELECT worker, pool, time_bucket($bucket, since, TIMESTAMP '2000-01-01') AS bucket, count(*) AS n, avg(seconds) AS hold_s, avg(pages) AS pages_each
    FROM held GROUP BY ALL
),
explained AS (  -- page-seconds of holds inside each bucket, over its length
    SELECT b.worker, b.pool, b.bucket,
           sum(h.pages * greatest(date_diff('microsecond', greatest(h.since, b.bucket), least(h.since + to_microseconds(CAST(h.seconds * 1e6 AS BIGINT)), b.bucket + $bucket)), 0))
           / 1e6 / (epoch_ms(TIMESTAMP '1970-01-01' + $bucket) / 1000.0) AS expected
    FROM beats AS b
    JOIN held AS h ON h.worker = b.worker AND h.pool = b.pool AND h.since < b.bucket + $bucket
    GROUP BY ALL
),
sizes AS (SELECT worker, pool, max(pool_pages) AS pool_pages FROM workers WHERE op = 'config' GROUP BY worker, pool)
SELECT b.worker, b.pool, b.bucket AS t,
       round(coalesce(g.n, 0) / (epoch_ms(TIMESTAMP '1970-01-01' + $bucket) / 1000.0), 3) AS holds_per_s, round(g.hold_s, 3) AS hold_s, round(g.pages_each, 1) AS pages_each,
       round(coalesce(x.expected, 0), 1) AS expected, round(b.measured, 1) AS measured, b.quarantined, s.pool_pages, b.free,
       CASE WHEN b.free_last < b.free_first
            THEN round(b.free_last * (epoch_ms(TIMESTAMP '1970-01-01' + $bucket) / 1000.0) / (b.free_first - b.free_last), 1) END AS full_in_s,
       round(coalesce(x.expected, 0) * $abort_factor * $hold_factor, 1) AS what_if
FROM beats AS b
LEFT JOIN begun AS g USING (worker, pool, bucket)
LEFT JOIN explained AS x USING (worker, pool, bucket)
LEFT JOIN sizes AS s USING (worker, pool)
WHERE (b.worker, b.pool) IN (SELECT worker, pool FROM holds UNION SELECT worker, pool FROM gauges WHERE held > 0 OR quarantined > 0)
ORDER BY b.worker, b.pool, b.bucket;
