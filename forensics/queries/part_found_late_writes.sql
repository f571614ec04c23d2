-- ---
-- title: Late writes, the rows
-- part_of: late-writes, detections
-- question: Which writes landed, or may have, after the pages they were meant for had been given back?
-- since: "0.2"
-- ---

-- step: found_late_writes
-- A free before the writer had said that nothing is outstanding, or writes after it had said so. Whether anybody read the bytes is the verdicts' to say.
CREATE TEMP TABLE found_late_writes AS
WITH hurried AS (  -- of what was given back surely after its last write, no page can be late
    SELECT DISTINCT f.lease
    FROM page_rows AS f
    JOIN handoffs AS h ON h.decode = f.worker AND h.decode_epoch = f.epoch AND h.pool = f.pool AND h.dst_tag = f.tag
    WHERE f.op = 'free' AND h.last_done > f.t - to_microseconds($skew_us)
),
each_freed AS (
    SELECT worker, epoch, pool, tag, unnest(pages) AS page, seq, t, cause FROM page_rows JOIN hurried USING (lease) WHERE op = 'free'
),
freed AS (
    SELECT worker, epoch, pool, tag, page, min(seq) AS seq, min(t) AS t, min(cause) AS cause
    FROM each_freed GROUP BY worker, epoch, pool, tag, page
),
written AS (
    SELECT x.xfer, coalesce(x.dst_pool, 'kv') AS pool, x.t AS done, unnest(x.dst_pages) AS page
    FROM transfers AS x
    WHERE x.op = 'done' AND x.peer <> x.worker
),
late AS (
    SELECT h.decode, h.decode_epoch, h.decode_req, h.pool, h.drained, h.drain_sent, w.page, w.done, f.t AS freed, f.cause, f.tag,
           f.seq AS free_seq
    FROM written AS w
    JOIN handoffs AS h ON h.xfer = w.xfer AND h.pool = w.pool
    JOIN freed AS f ON f.worker = h.decode AND f.epoch = h.decode_epoch AND f.pool = h.pool AND f.tag = h.dst_tag
         AND f.page = w.page
    WHERE w.done > f.t - to_microseconds($skew_us) AND (h.drained IS NULL OR h.drained > f.t OR w.done > h.drain_sent)
      AND ($from IS NULL OR w.done >= $from::TIMESTAMP) AND ($to IS NULL OR w.done < $to::TIMESTAMP)
),
next AS (  -- looked up for late pages alone: few, where any
    SELECT l.decode, l.decode_epoch, l.pool, l.page, l.free_seq, min(n.seq) AS seq
    FROM late AS l
    JOIN touched AS n ON n.worker = l.decode AND n.epoch = l.decode_epoch AND n.pool = l.pool AND n.page = l.page
         AND n.op IN ('reserve', 'append') AND n.seq > l.free_seq
    GROUP BY l.decode, l.decode_epoch, l.pool, l.page, l.free_seq
),
taken AS (
    SELECT l.*, t.req AS next_req, t.tag AS next_tag,
           EXISTS (SELECT 1 FROM touched AS b WHERE b.worker = l.decode AND b.epoch = l.decode_epoch AND b.pool = l.pool
                   AND b.page = l.page AND b.tag = t.tag AND b.op = 'bind') AS next_read
    FROM late AS l
    LEFT JOIN next AS n USING (decode, decode_epoch, pool, page, free_seq)
    LEFT JOIN touched AS t ON t.worker = l.decode AND t.epoch = l.decode_epoch AND t.pool = l.pool AND t.page = l.page
         AND t.seq = n.seq
)
SELECT a.rid, k.decode, k.pool, count(DISTINCT k.page) AS pages, list_sort(list_distinct(list(k.page))) AS page_list, min(k.cause) AS cause,
       min(k.freed) AS freed, max(k.done) AS done,
       round(date_diff('microsecond', min(k.freed), max(k.done)) / 1000.0, 3) AS late_ms,
       CASE WHEN max(k.done) > min(k.freed) + to_microseconds($skew_us) THEN 'by clock' ELSE 'perhaps' END AS sure,
       b.rid AS next_rid, CASE WHEN b.rid IS NULL THEN NULL WHEN bool_or(k.next_read) THEN 'yes' ELSE 'no' END AS next_read
FROM taken AS k
LEFT JOIN asked_for AS a ON a.worker = k.decode AND a.epoch = k.decode_epoch AND a.req = k.decode_req
LEFT JOIN asked_for AS b ON b.worker = k.decode AND b.epoch = k.decode_epoch AND b.req = k.next_req
GROUP BY a.rid, k.decode, k.pool, b.rid;
