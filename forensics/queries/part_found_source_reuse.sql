-- ---
-- title: Reused sources, the rows
-- part_of: source-reuse, detections
-- question: Which pages were given back, or given to others, while they were being read by a transfer?
-- since: "0.2"
-- ---

-- step: found_source_reuse
-- By the order of the worker that is read from: free before done. Bytes that nobody has rewritten are intact.
CREATE TEMP TABLE found_source_reuse AS
WITH moving AS (
    SELECT p.worker, p.epoch, p.req, p.xfer, p.chunk, coalesce(p.src_pool, 'kv') AS pool, p.src_tag AS tag, p.t AS posted,
           p.seq AS post_seq, d.seq AS done_seq, d.t AS done, unnest(p.src_pages) AS page
    FROM transfers AS p
    LEFT JOIN transfers AS d ON d.worker = p.worker AND d.epoch = p.epoch AND d.xfer = p.xfer AND d.chunk = p.chunk
         AND d.op IN ('done', 'fail') AND coalesce(d.src_pool, 'kv') = coalesce(p.src_pool, 'kv')
    WHERE p.op = 'post' AND ($from IS NULL OR p.t >= $from::TIMESTAMP) AND ($to IS NULL OR p.t < $to::TIMESTAMP)
),
freed AS (
    SELECT m.*, f.seq AS free_seq, f.t AS freed
    FROM moving AS m
    JOIN touched AS f ON f.worker = m.worker AND f.epoch = m.epoch AND f.pool = m.pool AND f.page = m.page AND f.op = 'free'
         AND f.tag = m.tag AND f.seq < coalesce(m.done_seq, 9223372036854775807)
),
rewritten AS (
    SELECT f.*, w.req AS by_req
    FROM freed AS f
    LEFT JOIN touched AS w ON w.worker = f.worker AND w.epoch = f.epoch AND w.pool = f.pool AND w.page = f.page AND w.op = 'write'
         AND w.tag <> f.tag AND w.seq > f.free_seq
         AND coalesce(w.since_seq, w.seq) < coalesce(f.done_seq, 9223372036854775807)
)
SELECT a.rid, r.worker, r.pool, count(DISTINCT r.page) AS pages, list_sort(list_distinct(list(r.page))) AS page_list,
       count(DISTINCT r.page) FILTER (WHERE r.by_req IS NOT NULL) AS rewritten, min(b.rid) AS by_rid, min(r.posted) AS posted,
       CASE WHEN count(*) = count(r.done_seq) THEN max(r.done) END AS done, min(r.freed) AS freed
FROM rewritten AS r
LEFT JOIN asked_for AS a ON a.worker = r.worker AND a.epoch = r.epoch AND a.req = r.req
LEFT JOIN asked_for AS b ON b.worker = r.worker AND b.epoch = r.epoch AND b.req = r.by_req
GROUP BY a.rid, r.worker, r.epoch, r.req, r.pool;
