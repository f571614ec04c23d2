-- ---
-- title: Tenures, one row per page and tag
-- part_of: the library
-- question: From when to when was a page whose?
-- since: "0.2"
-- ---

-- step: doubtful
-- Leases whose pages have to be looked at one by one: some row took pages that no row of the same list gave back, or some
-- page was given back twice.
CREATE TEMP TABLE doubtful AS
SELECT DISTINCT lease FROM page_rows AS t
WHERE op IN ('reserve', 'append') AND NOT EXISTS (
    SELECT 1 FROM page_rows AS f
    WHERE f.op = 'free' AND f.lease = t.lease AND f.pool = t.pool AND f.tag = t.tag AND f.pages = t.pages)
UNION
SELECT lease FROM touched WHERE op = 'free' GROUP BY lease, page HAVING count(*) > 1;

-- step: tenure_rows
-- From the reserve (or append) of pages under a tag to their free under that tag; null = never freed.
CREATE TEMP TABLE tenure_rows AS
WITH
taken AS (
    SELECT area, lease, worker, epoch, pool, tag, req, seq AS taken_seq, t AS taken, pages, lease IN (SELECT lease FROM doubtful) AS in_doubt
    FROM page_rows WHERE op IN ('reserve', 'append')
),
given AS (SELECT lease, seq AS freed_seq, t AS freed, cause, 1 AS frees, pages FROM page_rows WHERE op = 'free'),
taken_each AS (SELECT * EXCLUDE (pages, in_doubt), unnest(pages) AS page FROM taken WHERE in_doubt),
given_each AS (
    SELECT worker, epoch, pool, tag, seq, t, cause, unnest(pages) AS page
    FROM page_rows WHERE op = 'free' AND lease IN (SELECT lease FROM doubtful)
),
given_once AS (
    SELECT worker, epoch, pool, tag, page, min(seq) AS freed_seq, min(t) AS freed, min(cause) AS cause, count(*) AS frees
    FROM given_each GROUP BY worker, epoch, pool, tag, page
)
SELECT area, worker, epoch, pool, tag, req, taken_seq, taken, freed_seq, freed, cause, frees, pages
FROM taken JOIN given USING (lease, pages) WHERE NOT in_doubt
UNION ALL
SELECT area, worker, epoch, pool, tag, req, taken_seq, taken, freed_seq, freed, cause, coalesce(frees, 0), [page]
FROM taken_each LEFT JOIN given_once USING (worker, epoch, pool, tag, page);

-- step: tenures
-- The same, one row per page.
CREATE TEMP VIEW tenures AS
SELECT area, worker, epoch, pool, tag, req, taken_seq, taken, freed_seq, freed, cause, frees, unnest(pages) AS page FROM tenure_rows;
