-- ---
-- title: Pages, one row per page
-- part_of: the library
-- question: Which operation touched which page?
-- since: "0.2"
-- ---

-- step: page_rows
-- Every row of `pages` that names pages. Rows of one worker's pool have one `area`, and of one tag in it one `lease`: numbers
-- for joins. What is known of whole rows spares the look at their pages.
CREATE TEMP TABLE page_rows AS
SELECT worker, epoch, seq, t, op, pool, req, tag, pos, xfer, cause, deadline, since_seq, tokens, pages,
       dense_rank() OVER (ORDER BY worker, epoch, pool) AS area, dense_rank() OVER (ORDER BY worker, epoch, pool, tag) AS lease
FROM pages
WHERE len(pages) > 0;

-- step: touched
-- The same, one row per page of its list.
CREATE TEMP VIEW touched AS
SELECT worker, epoch, seq, t, op, pool, req, tag, pos, xfer, cause, deadline, since_seq, tokens, area, lease,
       unnest(pages) AS page, generate_subscripts(pages, 1) - 1 AS place
FROM page_rows;
