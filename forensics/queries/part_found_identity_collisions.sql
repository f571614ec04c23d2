-- ---
-- title: Names used twice, the rows
-- part_of: identity-collisions, detections
-- question: Which rooms, request ids or transfers were used by two requests at once?
-- since: "0.2"
-- ---

-- step: found_identity_collisions
-- At once: the second was received before the first had ended, by the order of one worker. Attempts of one request id are one request's.
CREATE TEMP TABLE found_identity_collisions AS
WITH pairs AS (
    SELECT 'room' AS what, CAST(a.room AS VARCHAR) AS name, a.worker, a.rid, b.rid AS other_rid, a.tenant, b.tenant AS other_tenant, b.received AS since,
           least(a.ended, b.ended) AS until
    FROM asked_for AS a
    JOIN asked_for AS b ON b.worker = a.worker AND b.epoch = a.epoch AND b.room = a.room AND b.received_seq > a.received_seq
         AND b.received_seq < coalesce(a.ended_seq, 9223372036854775807) AND b.rid <> a.rid
    UNION ALL
    SELECT 'request id', a.rid, a.worker, a.rid, b.rid, a.tenant, b.tenant, b.received, least(a.ended, b.ended)
    FROM asked_for AS a
    JOIN asked_for AS b ON b.worker = a.worker AND b.epoch = a.epoch AND b.rid = a.rid AND b.received_seq > a.received_seq
         AND b.received_seq < coalesce(a.ended_seq, 9223372036854775807)
    UNION ALL
    SELECT 'transfer', CAST(x.xfer AS VARCHAR), min(x.worker), min(a.rid), max(a.rid), min(a.tenant), max(a.tenant), max(x.t), NULL
    FROM transfers AS x JOIN asked_for AS a ON a.worker = x.worker AND a.epoch = x.epoch AND a.req = x.req
    WHERE x.op IN ('grant', 'post') GROUP BY x.xfer HAVING count(DISTINCT a.rid) > 1
)
SELECT what, name, worker, rid, other_rid, CASE WHEN tenant = other_tenant THEN 1 ELSE 2 END AS tenants, since, until
FROM pairs;
