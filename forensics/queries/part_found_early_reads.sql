-- ---
-- title: Early reads, the rows
-- part_of: early-reads, detections
-- question: Which pages were handed to the wire before they had been computed?
-- since: "0.2"
-- ---

-- step: found_early_reads
-- By the order of one worker, no clock: the post stands before the write of the same page under the same tag.
CREATE TEMP TABLE found_early_reads AS
WITH posted AS (
    SELECT worker, epoch, seq, t, req, peer, coalesce(src_pool, 'kv') AS pool, src_tag AS tag, unnest(src_pages) AS page
    FROM transfers WHERE op = 'post' AND src_pages IS NOT NULL AND peer <> worker
),
written AS (
    SELECT worker, epoch, pool, tag, page, min(seq) AS first_seq, max(seq) AS last_seq, max(t) AS t
    FROM touched WHERE op = 'write' GROUP BY worker, epoch, pool, tag, page
),
got AS (  -- what came from elsewhere was complete when it had landed; of what is never posted nobody asks
    SELECT worker, epoch, pool, tag, unnest(pages) AS page FROM page_rows AS r
    WHERE op = 'receipt' AND EXISTS (
        SELECT 1 FROM transfers AS p WHERE p.op = 'post' AND p.worker = r.worker AND p.epoch = r.epoch AND coalesce(p.src_pool, 'kv') = r.pool
        AND p.src_tag = r.tag)
    UNION ALL
    SELECT worker, epoch, coalesce(dst_pool, 'kv'), dst_tag, unnest(dst_pages) FROM transfers WHERE op = 'done' AND peer = worker
),
early AS (
    SELECT p.*, w.t AS written
    FROM posted AS p
    LEFT JOIN written AS w USING (worker, epoch, pool, tag, page)
    WHERE NOT EXISTS (SELECT 1 FROM got AS g WHERE g.worker = p.worker AND g.epoch = p.epoch AND g.pool = p.pool AND g.tag = p.tag AND g.page = p.page)
      AND (w.last_seq > p.seq
           OR (w.last_seq IS NULL AND NOT EXISTS (  -- a write that is not there may be among rows that are lost
               SELECT 1 FROM gaps AS m WHERE m.worker = p.worker AND m.epoch = p.epoch AND m."table" IN ('pages', 'transfers')
               AND coalesce(m.pool, p.pool) = p.pool)))
      AND ($from IS NULL OR p.t >= $from::TIMESTAMP) AND ($to IS NULL OR p.t < $to::TIMESTAMP)
)
SELECT a.rid, e.worker, e.pool, count(DISTINCT e.page) AS pages, list_sort(list_distinct(list(e.page))) AS page_list, min(e.t) AS posted,
       min(e.seq) AS post_seq, CASE WHEN count(*) = count(e.written) THEN max(e.written) END AS written,
       round(date_diff('microsecond', min(e.t), max(e.written)) / 1000.0, 3) AS early_ms, min(e.peer) AS peer
FROM early AS e
LEFT JOIN asked_for AS a ON a.worker = e.worker AND a.epoch = e.epoch AND a.req = e.req
GROUP BY a.rid, e.worker, e.epoch, e.req, e.pool;
