-- ---
-- title: Double owners, the rows
-- part_of: double-owners, detections
-- question: Which pages belonged to two requests at once, or were given back twice?
-- since: "0.2"
-- ---

-- step: found_double_owners
-- By the order of the worker, no clock.
CREATE TEMP TABLE found_double_owners AS
WITH ordered AS (
    SELECT area, page, freed_seq, lead(taken_seq) OVER (PARTITION BY area, page ORDER BY taken_seq) AS next_seq
    FROM tenures
),
crowded AS (  -- pages of which some tenure had not ended when the next began
    SELECT DISTINCT area, page FROM ordered WHERE next_seq < coalesce(freed_seq, 9223372036854775807)
),
shared AS (
    SELECT t.worker, t.epoch, t.pool, t.page, t.req, n.req AS other_req, n.taken AS since, t.freed AS until, 'two owners' AS what
    FROM tenures AS t
    JOIN crowded AS c USING (area, page)
    JOIN tenures AS n ON n.area = t.area AND n.pool = t.pool AND n.page = t.page AND n.tag <> t.tag
         AND n.taken_seq > t.taken_seq AND n.taken_seq < coalesce(t.freed_seq, 9223372036854775807)
),
twice AS (
    SELECT f.worker, f.epoch, f.pool, f.page, t.req, f.req AS other_req, f.t AS since, t.freed AS until, 'freed twice' AS what
    FROM tenures AS t
    JOIN touched AS f ON f.worker = t.worker AND f.epoch = t.epoch AND f.pool = t.pool AND f.page = t.page AND f.tag = t.tag
         AND f.op = 'free' AND f.seq > t.freed_seq
    WHERE t.frees > 1
),
found AS (SELECT * FROM shared UNION ALL SELECT * FROM twice)
SELECT f.worker, f.pool, f.what, a.rid, b.rid AS other_rid, count(DISTINCT f.page) AS pages,
       list_sort(list_distinct(list(f.page))) AS page_list, min(f.since) AS since, max(f.until) AS until
FROM found AS f
LEFT JOIN asked_for AS a ON a.worker = f.worker AND a.epoch = f.epoch AND a.req = f.req
LEFT JOIN asked_for AS b ON b.worker = f.worker AND b.epoch = f.epoch AND b.req = f.other_req
GROUP BY f.worker, f.epoch, f.pool, f.what, f.req, f.other_req, a.rid, b.rid;
