-- ---
-- title: Donors
-- question: Whose content was read by others, by how many, and how much of it?
-- parameters:
--   from: {type: instant, default: null, is: responses that read it started at or after}
--   to: {type: instant, default: null, is: responses that read it started before}
-- columns:
--   donor_rid: whose content it was; ? where several cannot be told apart
--   donor_tenant: its tenant (pseudonym)
--   readers: {is: responses that read it and let a token leave after, unit: responses}
--   reader_tenants: {is: their tenants, unit: tenants}
--   exposed_to: {is: "responses that it was exposed to without a token made from it, as far as is known", unit: responses}
--   pages: {is: "places in pools (worker, pool, page) where it was found", unit: pages}
--   proof: "`proved` where one finding is, `inferred` where a clock took part in all"
--   mechanisms: how it came there
--   first_read: the earliest of the readers began
--   last_read: the latest of the readers began
-- judges: true
-- rows: finding
-- parts: []
-- since: "0.2"
-- ---
-- A lower bound: where a page's writers are undecided, its donors are not all listed.

WITH read AS (
    SELECT f.*, r.started, unnest(coalesce(f.page_list, [])) AS page
    FROM findings AS f
    JOIN responses AS r ON r.rid = f.rid
    WHERE f.kind IN ('foreign', 'exposed') AND f.donor_rid IS NOT NULL
      AND ($from IS NULL OR r.started >= $from::TIMESTAMP) AND ($to IS NULL OR r.started < $to::TIMESTAMP)
)
SELECT donor_rid, donor_tenant,
       count(DISTINCT rid) FILTER (WHERE kind = 'foreign' AND delivered = 'yes') AS readers,
       count(DISTINCT tenant) FILTER (WHERE kind = 'foreign' AND delivered = 'yes') AS reader_tenants,
       count(DISTINCT rid) FILTER (WHERE NOT (kind = 'foreign' AND delivered = 'yes')) AS exposed_to,
       count(DISTINCT (worker, pool, page)) AS pages, max(proof) AS proof,
       list_sort(list_distinct(list(mechanism))) AS mechanisms, min(started) AS first_read, max(started) AS last_read
FROM read
GROUP BY donor_rid, donor_tenant
ORDER BY readers DESC, pages DESC, donor_rid;
