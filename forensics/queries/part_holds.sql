-- ---
-- title: Holds, one row per held handoff
-- part_of: the library
-- question: How many pages were held for a remote writer, from when to when, and what ended it?
-- since: "0.2"
-- ---

-- step: holds
-- A hold ends with the free of its pages; null = they are held still.
CREATE TEMP TABLE holds AS
WITH
held AS (
    SELECT worker, epoch, pool, req, tag, min(seq) AS hold_seq, min(t) AS since, sum(n) AS pages, max(deadline) AS deadline, min(cause) AS why
    FROM pages WHERE op = 'hold' GROUP BY worker, epoch, pool, req, tag
),
freed AS (
    SELECT worker, epoch, pool, tag, seq, t, cause, n FROM pages WHERE op = 'free'
)
SELECT h.worker, h.epoch, h.pool, h.req, h.tag, h.since, h.pages, h.deadline, h.why,
       max(f.t) AS until, min(f.cause) AS outcome, coalesce(sum(f.n), 0) AS freed_pages
FROM held AS h
LEFT JOIN freed AS f ON f.worker = h.worker AND f.epoch = h.epoch AND f.pool = h.pool AND f.tag = h.tag AND f.seq > h.hold_seq
GROUP BY h.worker, h.epoch, h.pool, h.req, h.tag, h.since, h.pages, h.deadline, h.why;
