-- ---
-- title: How holds ended
-- question: What became of the pages that were held for a writer, and how long did it take?
-- parameters: {}
-- columns:
--   worker: whose pool
--   pool: the component
--   outcome: "`drained` (its writer said so), `timeout` (a timer ended it, which proves nothing), another cause, or `held` still"
--   holds: {is: how many, unit: holds}
--   pages: {is: their pages, unit: pages}
--   shortest_s: {is: the shortest, unit: s}
--   median_s: {is: half of them took longer, unit: s}
--   longest_s: {is: the longest, unit: s}
--   past_deadline: {is: of them those that lasted beyond their deadline, unit: holds}
--   first: when the first began
--   last: when the last began
-- rows: fact
-- parts: [part_holds]
-- since: "0.2"
-- ---
-- Open holds count until the end of the record.

WITH ends AS (SELECT worker, epoch, max(t) AS last FROM (SELECT worker, epoch, t FROM pages UNION ALL SELECT worker, epoch, t FROM gauges) AS rows GROUP BY ALL),
lasted AS (
    SELECT h.*, coalesce(h.outcome, 'held') AS ended_as, date_diff('millisecond', h.since, coalesce(h.until, e.last)) / 1000.0 AS seconds,
           coalesce(h.until, e.last) > h.deadline AS past
    FROM holds AS h LEFT JOIN ends AS e USING (worker, epoch)
)
SELECT worker, pool, ended_as AS outcome, count(*) AS holds, sum(pages) AS pages, min(seconds) AS shortest_s, round(median(seconds), 3) AS median_s,
       max(seconds) AS longest_s, count(*) FILTER (WHERE past) AS past_deadline, min(since) AS first, max(since) AS last
FROM lasted
GROUP BY worker, pool, ended_as
ORDER BY worker, pool, outcome;
