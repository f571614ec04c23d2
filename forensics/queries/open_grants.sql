-- ---
-- title: Open grants
-- question: Which handoffs may still be written to, because their writer has not said that nothing is outstanding?
-- parameters:
--   older_than: {type: duration, default: 0s, is: only those granted at least so long before the end of the record}
-- columns:
--   rid: the request at decode
--   xfer: {is: the handoff, shown: false}
--   pool: the component
--   pages: {is: pages that may be written, unit: pages}
--   prefill: who may write
--   decode: whose pages they are
--   granted: when
--   age_s: {is: until the end of that worker's record, unit: s}
--   outstanding: {is: what its writer said last, unit: writes}
--   aborted: when it was given up
--   request: "how its request stands: `running`, or the op that ended it"
-- rows: fact
-- parts: [part_asked_for, part_handoffs]
-- since: "0.2"
-- ---
-- Drained is a handoff of which an `ack` with outstanding 0 was received; a timer proves nothing.

WITH ends AS (SELECT worker, epoch, max(t) AS last FROM (SELECT worker, epoch, t FROM transfers UNION ALL
              SELECT worker, epoch, t FROM requests UNION ALL SELECT worker, epoch, t FROM gauges UNION ALL
              SELECT worker, epoch, t FROM pages UNION ALL SELECT worker, epoch, t FROM workers) AS rows
              GROUP BY worker, epoch)
SELECT a.rid, h.xfer, h.pool, h.reserved AS pages, h.prefill, h.decode, h.granted,
       date_diff('millisecond', h.granted, e.last) / 1000.0 AS age_s, h.most_outstanding AS outstanding, h.aborted,
       coalesce(a.end_op, 'running') AS request
FROM handoffs AS h
JOIN ends AS e ON e.worker = h.decode AND e.epoch = h.decode_epoch
LEFT JOIN asked_for AS a ON a.worker = h.decode AND a.epoch = h.decode_epoch AND a.req = h.decode_req
WHERE h.drained IS NULL AND e.last - h.granted >= $older_than
ORDER BY h.granted, a.rid, h.pool;
