-- ---
-- title: Coverage of the record
-- question: For which times, workers and tables is there a record at all, and how whole is it?
-- parameters: {}
-- columns:
--   worker: whose record
--   epoch: which life of the worker
--   role: its role
--   first: its first row
--   last: its last row
--   closed: "whether its end is known: `yes`, or `no` (it is alive, or died)"
--   rows: {is: rows that are there, unit: rows}
--   lost: {is: rows that are known to be missing, unit: rows}
--   gaps: {is: broken chains, unit: gaps}
--   silent_s: {is: the longest time without any row, unit: s}
--   seen_by: {is: workers whose heartbeats name it, unit: workers}
--   clock_offset_us: {is: "largest offset of a peer's clock to its own, as it measured", unit: us}
-- rows: fact
-- parts: []
-- since: "0.2"
-- ---
-- What no recorder stood beside is not here at all: compare the workers with the fleet.

WITH every AS (
    SELECT worker, epoch, t FROM workers UNION ALL SELECT worker, epoch, t FROM requests UNION ALL SELECT worker, epoch, t FROM pages
    UNION ALL SELECT worker, epoch, t FROM transfers UNION ALL SELECT worker, epoch, t FROM cache UNION ALL SELECT worker, epoch, t FROM steps
    UNION ALL SELECT worker, epoch, t FROM checks UNION ALL SELECT worker, epoch, t FROM gauges
),
quiet AS (SELECT worker, epoch, t, date_diff('millisecond', lag(t) OVER (PARTITION BY worker, epoch ORDER BY t), t) AS ms FROM every),
told AS (SELECT worker, epoch, min(t) AS first, max(t) AS last, count(*) AS rows, max(ms) / 1000.0 AS silent_s FROM quiet GROUP BY worker, epoch),
life AS (
    SELECT worker, epoch, max(role) AS role, bool_or(op = 'close') AS closed, max(abs(clock_offset_us)) AS offset_us FROM workers GROUP BY worker, epoch
),
seen AS (SELECT peer AS worker, peer_epoch AS epoch, count(DISTINCT worker) AS n FROM workers WHERE op = 'heartbeat' AND peer IS NOT NULL GROUP BY ALL),
broken AS (
    SELECT worker, epoch, count(*) AS gaps, CAST(sum(before_seq - after_seq - 1) AS BIGINT) AS lost FROM gaps GROUP BY worker, epoch
)
SELECT t.worker, t.epoch, l.role, t.first, t.last, CASE WHEN l.closed THEN 'yes' ELSE 'no' END AS closed, t.rows, coalesce(b.lost, 0) AS lost,
       coalesce(b.gaps, 0) AS gaps, t.silent_s, coalesce(s.n, 0) AS seen_by, l.offset_us AS clock_offset_us
FROM told AS t
LEFT JOIN life AS l USING (worker, epoch)
LEFT JOIN broken AS b USING (worker, epoch)
LEFT JOIN seen AS s USING (worker, epoch)
ORDER BY t.worker, t.epoch;
