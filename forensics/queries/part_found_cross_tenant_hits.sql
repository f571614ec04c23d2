-- ---
-- title: Hits across identities, the rows
-- part_of: cross-tenant-hits, detections
-- question: Which requests took cached pages that a request of another identity had computed, and by policy or by a broken key?
-- since: "0.2"
-- ---

-- step: found_cross_tenant_hits
-- The giver is who inserted the page under the tag that the hit names. Policy shows in equal salts: they are made by the
-- configured scope, whatever a broken key leaves out.
CREATE TEMP TABLE found_cross_tenant_hits AS
WITH hits AS (
    SELECT worker, epoch, seq, t, tier, req, tenant, adapter, media, weights, kv_format, salt_fp, pool, tag, unnest(pages) AS page
    FROM cache WHERE op = 'hit' AND ($from IS NULL OR t >= $from::TIMESTAMP) AND ($to IS NULL OR t < $to::TIMESTAMP)
),
filed AS (
    SELECT worker, epoch, seq, tier, req, tenant, adapter, media, weights, kv_format, salt_fp, pool, tag, unnest(pages) AS page
    FROM cache WHERE op IN ('insert', 'offload')
),
pairs AS (
    SELECT h.worker, h.epoch, h.t, h.tier, h.req, h.tenant, h.page, g.req AS giver, g.tenant AS giver_tenant, g.salt_fp = h.salt_fp AS same_salt,
           concat_ws(', ',
               CASE WHEN h.tenant IS DISTINCT FROM g.tenant THEN 'tenant' END,
               CASE WHEN h.adapter IS DISTINCT FROM g.adapter THEN 'adapter' END,
               CASE WHEN h.media IS DISTINCT FROM g.media THEN 'media' END,
               CASE WHEN h.weights IS DISTINCT FROM g.weights THEN 'weights' END,
               CASE WHEN h.kv_format IS DISTINCT FROM g.kv_format THEN 'kv_format' END) AS differs_in
    FROM hits AS h
    JOIN filed AS g ON g.worker = h.worker AND g.epoch = h.epoch AND g.pool = h.pool AND g.tag = h.tag AND g.page = h.page AND g.seq < h.seq
)
SELECT a.rid, p.tenant, b.rid AS giver_rid, p.giver_tenant, p.differs_in,
       CASE WHEN p.differs_in = 'tenant' AND bool_and(p.same_salt) THEN 'yes' ELSE 'no' END AS key_kept_apart,
       p.worker, p.tier, count(DISTINCT p.page) AS pages, min(p.t) AS t
FROM pairs AS p
LEFT JOIN asked_for AS a ON a.worker = p.worker AND a.epoch = p.epoch AND a.req = p.req
LEFT JOIN asked_for AS b ON b.worker = p.worker AND b.epoch = p.epoch AND b.req = p.giver
WHERE p.differs_in <> ''
GROUP BY a.rid, p.tenant, b.rid, p.giver_tenant, p.differs_in, p.worker, p.tier;
