-- ---
-- title: Tenures, one row per page and tag
-- part_of: the library
-- question: From when to when was a page whose?
-- since: "0.2"
-- ---

-- step: tenures
-- From the reserve (or append) of a page under a tag to its free under that tag; null = never freed.
CREATE TEMP TABLE tenures AS
WITH
taken AS (
    SELECT worker, epoch, pool, tag, page, req, seq AS taken_seq, t AS taken
    FROM touched WHERE op IN ('reserve', 'append')
),
freed AS (
    SELECT worker, epoch, pool, tag, page, min(seq) AS freed_seq, min(t) AS freed, min(cause) AS cause, count(*) AS frees
    FROM touched WHERE op = 'free' GROUP BY worker, epoch, pool, tag, page
)
SELECT t.*, f.freed_seq, f.freed, f.cause, coalesce(f.frees, 0) AS frees
FROM taken AS t
LEFT JOIN freed AS f USING (worker, epoch, pool, tag, page);
