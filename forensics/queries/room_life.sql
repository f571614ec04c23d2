-- ---
-- title: Life of a room
-- question: Which requests met under this name, and what passed between their workers?
-- parameters:
--   room: {type: integer, is: the room}
-- columns:
--   t: when, by the worker's clock
--   worker: who wrote the row
--   seq: its place in the worker's order
--   op: what happened
--   rid: whose request
--   pool: which pool
--   n: {is: how many, unit: pages}
--   peer: the other worker
--   xfer: {is: the handoff, shown: false}
--   says: what else the row says
-- rows: fact
-- parts: [part_asked_for]
-- since: "0.2"
-- ---
-- Rows that name the room, and all rows of the handoffs that were granted under it.

WITH handed AS (SELECT DISTINCT xfer FROM transfers WHERE room = $room AND xfer IS NOT NULL),
granted AS (  -- whose a handoff is, also once its request has ended and its rows name none
    SELECT x.xfer, min(a.rid) AS rid
    FROM transfers AS x JOIN asked_for AS a ON a.worker = x.worker AND a.epoch = x.epoch AND a.req = x.req
    WHERE x.op = 'grant' GROUP BY x.xfer
),
life AS (
    SELECT t, worker, epoch, seq, op, req, NULL AS pool, NULL AS n, NULL AS peer, NULL AS xfer,
           concat_ws(', ', status, reason) AS says
    FROM requests
    WHERE room = $room
    UNION ALL
    SELECT t, worker, epoch, seq, op, req, coalesce(dst_pool, src_pool), n, peer, xfer,
           concat_ws(', ', status, 'asked ' || asked, outstanding || ' outstanding')
    FROM transfers
    WHERE xfer IN (SELECT xfer FROM handed) OR room = $room
)
SELECT l.t, l.worker, l.seq, l.op, coalesce(a.rid, g.rid) AS rid, l.pool, l.n, l.peer, l.xfer, l.says
FROM life AS l
LEFT JOIN asked_for AS a ON a.worker = l.worker AND a.epoch = l.epoch AND a.req = l.req
LEFT JOIN granted AS g ON g.xfer = l.xfer
ORDER BY l.t, l.worker, l.epoch, l.seq;
