-- ---
-- title: Leaks, the rows
-- part_of: leaks, detections
-- question: Which pages belong to requests that have ended, and are neither free, held, cached nor shared?
-- since: "0.2"
-- ---

-- step: found_leaks
-- Pages that are held on purpose are in `held-capacity`.
CREATE TEMP TABLE found_leaks AS
WITH ends AS (SELECT worker, epoch, max(t) AS last FROM (SELECT worker, epoch, t FROM pages UNION ALL
              SELECT worker, epoch, t FROM requests UNION ALL SELECT worker, epoch, t FROM gauges) AS rows GROUP BY worker, epoch),
kept AS (  -- the last word on a page under a tag that keeps it from its pool on purpose
    SELECT worker, epoch, pool, tag, page, max(seq) AS seq FROM touched WHERE op = 'hold' GROUP BY ALL
    UNION ALL
    SELECT worker, epoch, pool, tag, page, max(seq)
    FROM (SELECT worker, epoch, pool, tag, seq, unnest(pages) AS page FROM cache WHERE op IN ('insert', 'offload')) AS filed
    GROUP BY ALL
),
filed AS (  -- a page of a tier belongs to nobody who could end
    SELECT DISTINCT worker, epoch, dst_pool AS pool, dst_tag AS tag, unnest(dst_pages) AS page
    FROM transfers WHERE op = 'done' AND peer = worker AND dst_pool = 'host'
)
SELECT t.worker, t.pool, a.rid, a.ended, a.end_op, count(*) AS pages, list_sort(list(t.page)) AS page_list,
       date_diff('millisecond', a.ended, e.last) / 1000.0 AS for_s
FROM tenures AS t
JOIN asked_for AS a ON a.worker = t.worker AND a.epoch = t.epoch AND a.req = t.req
JOIN ends AS e ON e.worker = t.worker AND e.epoch = t.epoch
LEFT JOIN kept AS k ON k.worker = t.worker AND k.epoch = t.epoch AND k.pool = t.pool AND k.tag = t.tag AND k.page = t.page
LEFT JOIN filed AS f ON f.worker = t.worker AND f.epoch = t.epoch AND f.pool = t.pool AND f.tag = t.tag AND f.page = t.page
WHERE t.freed_seq IS NULL AND a.ended IS NOT NULL AND e.last - a.ended >= $after AND k.page IS NULL AND f.page IS NULL
  AND NOT EXISTS (  -- a free that is not there may be among rows that are lost
      SELECT 1 FROM gaps AS m WHERE m.worker = t.worker AND m.epoch = t.epoch AND m."table" IN ('pages', 'cache')
      AND coalesce(m.pool, t.pool) = t.pool AND coalesce(m.before_seq, 9223372036854775807) > t.taken_seq AND m.reason NOT LIKE '%alive%')
GROUP BY t.worker, t.pool, a.rid, a.ended, a.end_op, e.last;
