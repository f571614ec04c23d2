-- ---
-- title: Transfers that do not add up, the rows
-- part_of: transfer-mismatch, detections
-- question: Where do pages reserved, asked for, posted, done and committed differ, from which place on, in which component?
-- since: "0.2"
-- ---

-- step: found_transfer_mismatch
-- Handoffs that were committed although fewer pages arrived than were granted, and those whose numbers contradict each
-- other. A handoff that was aborted or refused before its commit is none: what it lacks nobody read.
CREATE TEMP TABLE found_transfer_mismatch AS
WITH rows AS (
    SELECT xfer, coalesce(dst_pool, 'kv') AS pool, op, coalesce(pos, 0) AS pos, dst_pages AS pages
    FROM transfers WHERE op IN ('grant', 'done') AND peer IS DISTINCT FROM worker
),
astray AS (  -- of a `done` that is a stretch of its grant no page needs a look
    SELECT DISTINCT d.xfer, d.pool
    FROM (SELECT * FROM rows WHERE op = 'done') AS d
    JOIN (SELECT * FROM rows WHERE op = 'grant') AS g USING (xfer, pool)
    WHERE d.pos < g.pos OR d.pages IS DISTINCT FROM list_slice(g.pages, d.pos - g.pos + 1, d.pos - g.pos + len(d.pages))
),
placed AS (
    SELECT r.xfer, r.pool, r.op, r.pos + generate_subscripts(r.pages, 1) - 1 AS place, unnest(r.pages) AS page
    FROM rows AS r JOIN astray USING (xfer, pool)
),
misplaced AS (
    SELECT xfer, pool, count(*) AS n
    FROM (SELECT * FROM placed WHERE op = 'done') AS d
    JOIN (SELECT * FROM placed WHERE op = 'grant') AS g USING (xfer, pool, place)
    WHERE d.page <> g.page
    GROUP BY xfer, pool
),
lossy AS (SELECT DISTINCT worker FROM gaps WHERE "table" = 'transfers' AND reason NOT LIKE '%alive%'),
judged AS (
    SELECT a.rid, h.xfer, h.pool, h.reserved, h.asked, h.posted, h.done, h.failed,
           coalesce(m.n, 0) AS misplaced, h.tokens,
           CASE WHEN a.committed IS NOT NULL THEN a.covered_tokens END AS committed, coalesce(h.mover, h.prefill) AS prefill,
           h.decode, h.granted,
           concat_ws('; ',
               CASE WHEN h.asked <> h.reserved THEN 'asked for another number than was reserved' END,
               CASE WHEN m.n > 0 THEN 'written to other pages than were granted' END,
               CASE WHEN h.posted > h.asked THEN 'more was posted than asked for' END,
               -- A `done` that is not there may be among rows that are lost.
               CASE WHEN x.worker IS NOT NULL THEN NULL
                    WHEN a.committed IS NOT NULL AND h.done < h.asked AND h.failed > 0 THEN 'committed although writes failed'
                    WHEN a.committed IS NOT NULL AND h.done < h.asked THEN 'committed although fewer pages arrived' END
           ) AS what
    FROM handoffs AS h
    LEFT JOIN misplaced AS m USING (xfer, pool)
    LEFT JOIN lossy AS x ON x.worker = coalesce(h.mover, h.prefill)
    LEFT JOIN asked_for AS a ON a.worker = h.decode AND a.epoch = h.decode_epoch AND a.req = h.decode_req
    WHERE ($from IS NULL OR h.granted >= $from::TIMESTAMP) AND ($to IS NULL OR h.granted < $to::TIMESTAMP)
),
mismatched AS (SELECT * FROM judged WHERE what <> ''),
looked_at AS (
    SELECT r.xfer, r.pool, r.op, r.pos + generate_subscripts(r.pages, 1) - 1 AS place, unnest(r.pages) AS page
    FROM rows AS r WHERE r.xfer IN (SELECT xfer FROM mismatched)
),
missing AS (
    SELECT g.xfer, g.pool, min(g.place) AS first
    FROM (SELECT * FROM looked_at WHERE op = 'grant') AS g
    LEFT JOIN (SELECT * FROM looked_at WHERE op = 'done') AS d USING (xfer, pool, place)
    WHERE d.page IS NULL
    GROUP BY g.xfer, g.pool
)
SELECT rid, pool, reserved, asked, posted, done, failed, l.first AS missing_from, misplaced, tokens, committed, prefill, decode, what, granted
FROM mismatched
LEFT JOIN missing AS l USING (xfer, pool);
