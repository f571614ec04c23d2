-- ---
-- title: Holders
-- question: Which requests are pages held for still, since when, until when, and is anybody late?
-- parameters: {}
-- columns:
--   worker: whose pool
--   pool: the component
--   rid: for whom they are held
--   tenant: its tenant (pseudonym)
--   room: {is: its handoff, shown: false}
--   pages: {is: their pages, unit: pages}
--   since: when the hold began
--   age_s: {is: until the end of that worker's record, unit: s}
--   deadline: when a timer will end it; null = nothing will
--   overdue: "`yes` where the deadline was before the end of the record"
--   why: what the hold is for
-- rows: fact
-- parts: [part_asked_for, part_holds]
-- since: "0.3"
-- ---
-- The largest first. A hold ends with the free of its pages.

WITH ends AS (
    SELECT worker, epoch, max(t) AS last
    FROM (SELECT worker, epoch, t FROM pages UNION ALL SELECT worker, epoch, t FROM gauges UNION ALL SELECT worker, epoch, t FROM requests) AS rows
    GROUP BY worker, epoch
)
SELECT h.worker, h.pool, a.rid, a.tenant, a.room, CAST(h.pages - h.freed_pages AS BIGINT) AS pages, h.since,
       date_diff('millisecond', h.since, e.last) / 1000.0 AS age_s, h.deadline, CASE WHEN h.deadline < e.last THEN 'yes' ELSE 'no' END AS overdue, h.why
FROM holds AS h
JOIN ends AS e USING (worker, epoch)
LEFT JOIN asked_for AS a ON a.worker = h.worker AND a.epoch = h.epoch AND a.req = h.req
WHERE h.freed_pages < h.pages
ORDER BY h.pages - h.freed_pages DESC, h.since, h.worker, a.rid;
