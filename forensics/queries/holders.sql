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
--   peer: the other end of its handoff; null = no grant names one
--   ack: "what that end's DRAIN_ACK says: `drained`, `outstanding` (it has writes to come), `none` (it has not come); null = rows that could tell are lost, or there is no handoff"
-- rows: fact
-- parts: [part_asked_for, part_holds]
-- since: "0.3"
-- version: 2
-- ---
-- The largest first. A hold ends with the free of its pages. Of several acknowledgements the last one says.

WITH ends AS (
    SELECT worker, epoch, max(t) AS last
    FROM (SELECT worker, epoch, t FROM pages UNION ALL SELECT worker, epoch, t FROM gauges UNION ALL SELECT worker, epoch, t FROM requests) AS rows
    GROUP BY worker, epoch
),
granted AS (
    SELECT worker, epoch, coalesce(dst_pool, src_pool, 'kv') AS pool, coalesce(dst_tag, src_tag) AS tag, min(xfer) AS xfer, min(peer) AS peer
    FROM transfers WHERE op = 'grant' AND coalesce(dst_tag, src_tag) IS NOT NULL
    GROUP BY worker, epoch, coalesce(dst_pool, src_pool, 'kv'), coalesce(dst_tag, src_tag)
),
acked AS (
    SELECT worker, epoch, xfer, arg_max(outstanding, seq) AS outstanding
    FROM transfers WHERE op = 'ack' AND status = 'received' GROUP BY worker, epoch, xfer
),
lossy AS (SELECT DISTINCT worker, epoch FROM gaps WHERE "table" = 'transfers' AND reason NOT LIKE '%alive%')
SELECT h.worker, h.pool, a.rid, a.tenant, a.room, CAST(h.pages - h.freed_pages AS BIGINT) AS pages, h.since,
       date_diff('millisecond', h.since, e.last) / 1000.0 AS age_s, h.deadline, CASE WHEN h.deadline < e.last THEN 'yes' ELSE 'no' END AS overdue, h.why, g.peer,
       CASE WHEN k.outstanding = 0 THEN 'drained' WHEN k.outstanding > 0 THEN 'outstanding'
            WHEN g.xfer IS NOT NULL AND l.worker IS NULL THEN 'none' END AS ack
FROM holds AS h
JOIN ends AS e USING (worker, epoch)
LEFT JOIN granted AS g ON g.worker = h.worker AND g.epoch = h.epoch AND g.pool = h.pool AND g.tag = h.tag
LEFT JOIN acked AS k ON k.worker = h.worker AND k.epoch = h.epoch AND k.xfer = g.xfer
LEFT JOIN lossy AS l ON l.worker = h.worker AND l.epoch = h.epoch
LEFT JOIN asked_for AS a ON a.worker = h.worker AND a.epoch = h.epoch AND a.req = h.req
WHERE h.freed_pages < h.pages
ORDER BY h.pages - h.freed_pages DESC, h.since, h.worker, a.rid;
