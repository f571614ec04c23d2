-- ---
-- title: Life of a page
-- question: What happened to this page, in the order of its worker, and whose was it?
-- parameters:
--   worker: {type: text, is: the worker that has it}
--   page: {type: integer, is: its number in the pool}
--   pool: {type: text, default: kv, is: which pool}
--   from: {type: instant, default: null, is: rows at or after}
--   to: {type: instant, default: null, is: rows before}
-- columns:
--   t: when, by the worker's clock
--   epoch: {is: which life of the worker, shown: false}
--   seq: its place in the worker's order
--   op: what happened
--   rid: whose request it was about
--   tenant: {is: its tenant (pseudonym), shown: false}
--   place: {is: the page's place in that row's list, shown: false}
--   tag: {is: under which tag, shown: false}
--   cause: why
--   peer: "of a copy: the other worker"
--   xfer: {is: the handoff, shown: false}
-- rows: fact
-- parts: [part_asked_for, part_touched]
-- since: "0.2"
-- ---
-- Rows of `pages` and `cache` of its worker, and copies from and to it, which other workers may have written: those stand by time.

WITH copies AS (
    SELECT worker AS writer, epoch, seq, t, op, req, xfer, src_tag, dst_tag, peer, src_pool, dst_pool, src_pages, dst_pages
    FROM transfers
    WHERE op IN ('grant', 'post', 'done', 'fail')
),
life AS (
    SELECT t, worker AS writer, epoch, seq, op, req, place, tag, cause, NULL AS peer, xfer
    FROM touched
    WHERE worker = $worker AND pool = $pool AND page = $page
    UNION ALL
    SELECT t, worker, epoch, seq, 'cache ' || op, req, list_position(pages, $page::INTEGER) - 1, tag, tier, NULL, NULL
    FROM cache
    WHERE worker = $worker AND pool = $pool AND list_contains(pages, $page::INTEGER)
    UNION ALL
    SELECT t, writer, epoch, seq, op || ' from here', req, list_position(src_pages, $page::INTEGER) - 1, src_tag, NULL, peer, xfer
    FROM copies
    WHERE writer = $worker AND coalesce(src_pool, 'kv') = $pool AND list_contains(src_pages, $page::INTEGER)
    UNION ALL
    SELECT t, writer, epoch, seq, op || ' to here', req, list_position(dst_pages, $page::INTEGER) - 1, dst_tag, NULL,
           CASE WHEN writer = $worker THEN peer ELSE writer END, xfer
    FROM copies
    WHERE coalesce(dst_pool, 'kv') = $pool AND list_contains(dst_pages, $page::INTEGER)
      AND CASE WHEN op = 'grant' OR peer = writer THEN writer ELSE peer END = $worker
)
SELECT l.t, l.epoch, l.seq, l.op, a.rid, a.tenant, l.place, l.tag, l.cause, l.peer, l.xfer
FROM life AS l
LEFT JOIN asked_for AS a ON a.worker = l.writer AND a.epoch = l.epoch AND a.req = l.req
WHERE ($from IS NULL OR l.t >= $from::TIMESTAMP) AND ($to IS NULL OR l.t < $to::TIMESTAMP)
ORDER BY l.t, l.writer <> $worker, l.epoch, l.seq;
