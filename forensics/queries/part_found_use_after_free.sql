-- ---
-- title: Use after free, the rows
-- part_of: use-after-free, detections
-- question: Which pages were given back while a request still read them?
-- since: "0.2"
-- ---

-- step: found_use_after_free
-- By the order of the worker: a free under the reader's own tag between its bind and its unbind. A page that left a sliding
-- window was unbound before it was given back.
CREATE TEMP TABLE found_use_after_free AS
WITH spans AS (
    SELECT lease, min(seq) FILTER (WHERE op IN ('bind', 'append')) AS first_bind, max(seq) FILTER (WHERE op = 'unbind') AS last_unbind,
           min(seq) FILTER (WHERE op = 'free') AS first_free, max(seq) FILTER (WHERE op = 'free') AS last_free
    FROM page_rows GROUP BY lease
),
read_on AS (  -- some row bound pages that no row of the same list unbound
    SELECT DISTINCT lease FROM page_rows AS b
    WHERE op IN ('bind', 'append') AND NOT EXISTS (
        SELECT 1 FROM page_rows AS u WHERE u.lease = b.lease AND u.req = b.req AND u.op = 'unbind' AND u.pages = b.pages)
),
looked_at AS (  -- where every unbind stands before every free, no page needs a look
    SELECT r.* FROM page_rows AS r JOIN spans AS s USING (lease)
    WHERE s.last_free > s.first_bind AND (s.first_free < s.last_unbind OR s.lease IN (SELECT lease FROM read_on))
),
each AS (SELECT worker, epoch, pool, req, tag, op, seq, t, cause, unnest(pages) AS page FROM looked_at),
bound AS (
    SELECT worker, epoch, pool, req, tag, page, min(seq) AS bind_seq FROM each WHERE op IN ('bind', 'append') GROUP BY ALL
),
unbound AS (
    SELECT worker, epoch, pool, req, tag, page, max(seq) AS unbind_seq, max(t) AS unbound FROM each WHERE op = 'unbind' GROUP BY ALL
),
ended AS (SELECT worker, epoch, req, ended_seq, ended FROM asked_for),
early AS (
    SELECT b.worker, b.epoch, b.pool, b.req, b.page, b.tag, f.seq AS free_seq, f.t AS freed, f.cause,
           coalesce(u.unbind_seq, e.ended_seq) AS until_seq, coalesce(u.unbound, e.ended) AS read_until
    FROM bound AS b
    JOIN each AS f ON f.worker = b.worker AND f.epoch = b.epoch AND f.pool = b.pool AND f.page = b.page AND f.op = 'free'
         AND f.tag = b.tag AND f.seq > b.bind_seq
    LEFT JOIN unbound AS u ON u.worker = b.worker AND u.epoch = b.epoch AND u.pool = b.pool AND u.req = b.req AND u.tag = b.tag
         AND u.page = b.page
    LEFT JOIN ended AS e ON e.worker = b.worker AND e.epoch = b.epoch AND e.req = b.req
    WHERE f.seq < coalesce(u.unbind_seq, e.ended_seq, 9223372036854775807)
),
after AS (
    SELECT e.*, n.req AS by_req
    FROM early AS e
    LEFT JOIN touched AS n ON n.worker = e.worker AND n.epoch = e.epoch AND n.pool = e.pool AND n.page = e.page
         AND n.op IN ('reserve', 'append') AND n.seq > e.free_seq AND n.seq < coalesce(e.until_seq, 9223372036854775807)
)
SELECT a.rid, f.worker, f.pool, count(DISTINCT f.page) AS pages, list_sort(list_distinct(list(f.page))) AS page_list,
       min(f.freed) AS freed, min(f.cause) AS cause, CASE WHEN count(*) = count(f.until_seq) THEN max(f.read_until) END AS read_until,
       count(DISTINCT f.page) FILTER (WHERE f.by_req IS NOT NULL) AS taken_over, min(b.rid) AS by_rid
FROM after AS f
LEFT JOIN asked_for AS a ON a.worker = f.worker AND a.epoch = f.epoch AND a.req = f.req
LEFT JOIN asked_for AS b ON b.worker = f.worker AND b.epoch = f.epoch AND b.req = f.by_req
GROUP BY a.rid, f.worker, f.epoch, f.req, f.pool;
