-- ---
-- title: Pages, one row per page
-- part_of: the library
-- question: Which operation touched which page?
-- since: "0.2"
-- ---

-- step: touched
-- Every row of `pages` that names pages, one row per page of its list.
CREATE TEMP TABLE touched AS
SELECT worker, epoch, seq, t, op, pool, req, tag, pos, xfer, cause, deadline, since_seq, tokens,
       unnest(pages) AS page, generate_subscripts(pages, 1) - 1 AS place
FROM pages
WHERE len(pages) > 0;
