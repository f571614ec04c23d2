-- ---
-- title: Cache keys and who used them
-- question: Which cache keys were used by requests whose identities differ, and in what?
-- parameters:
--   tier: {type: text, default: null, is: only this tier}
-- columns:
--   worker: whose cache
--   tier: device, or a tier below it
--   component: which component
--   differs_in: "what the identities under one key differ in: tenant, adapter, media, weights, kv_format"
--   salts: {is: "distinct fingerprints of the owner that keys are kept apart by, under one key at most", unit: fingerprints}
--   keys: {is: keys that they share, unit: keys}
--   key_list: {is: the keys, shown: false}
--   tenants: {is: tenants that used them, unit: tenants}
--   rids: who inserted or hit them
--   first: the first of those uses
--   last: the last of those uses
-- rows: finding
-- parts: [part_asked_for]
-- since: "0.2"
-- ---
-- A key whose identities differ in a field lacks that field, or leaves it out on purpose (one salt: a scope wider than a tenant).

WITH used AS (
    SELECT worker, epoch, tier, component, req, tenant, adapter, media, weights, kv_format, salt_fp, t, unnest(keys) AS key
    FROM cache
    WHERE op IN ('insert', 'hit', 'load') AND returned IS DISTINCT FROM 0 AND ($tier IS NULL OR tier = $tier)
),
differing AS (
    SELECT worker, epoch, tier, component, key, count(DISTINCT salt_fp) AS salts,
           concat_ws(', ',
               CASE WHEN count(DISTINCT coalesce(tenant, '')) > 1 THEN 'tenant' END,
               CASE WHEN count(DISTINCT coalesce(adapter, '')) > 1 THEN 'adapter' END,
               CASE WHEN count(DISTINCT coalesce(media, '')) > 1 THEN 'media' END,
               CASE WHEN count(DISTINCT coalesce(weights, '')) > 1 THEN 'weights' END,
               CASE WHEN count(DISTINCT coalesce(kv_format, '')) > 1 THEN 'kv_format' END) AS differs_in
    FROM used GROUP BY worker, epoch, tier, component, key
)
SELECT u.worker, u.tier, u.component, d.differs_in, max(d.salts) AS salts, count(DISTINCT u.key) AS keys,
       list_sort(list_distinct(list(u.key))) AS key_list, count(DISTINCT u.tenant) AS tenants,
       list_sort(list_distinct(list(a.rid))) AS rids, min(u.t) AS first, max(u.t) AS last
FROM used AS u
JOIN differing AS d USING (worker, epoch, tier, component, key)
LEFT JOIN asked_for AS a ON a.worker = u.worker AND a.epoch = u.epoch AND a.req = u.req
WHERE d.differs_in <> ''
GROUP BY u.worker, u.tier, u.component, d.differs_in
ORDER BY first, u.worker, u.tier, d.differs_in;
