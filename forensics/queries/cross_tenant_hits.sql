-- ---
-- title: Hits across identities
-- question: Which requests took cached pages that a request of another identity had computed, and by policy or by a broken key?
-- parameters:
--   from: {type: instant, default: null, is: hits at or after}
--   to: {type: instant, default: null, is: hits before}
-- columns:
--   rid: who took them
--   tenant: its tenant (pseudonym)
--   giver_rid: who had computed them
--   giver_tenant: its tenant (pseudonym)
--   differs_in: "tenant, adapter, media, weights, kv_format"
--   key_kept_apart: "`yes`: the key holds what it should and policy shares it (P0); `no`: the key lacks a field (M12)"
--   worker: whose cache
--   tier: device, or a tier below it
--   pages: {is: pages taken, unit: pages}
--   t: when
-- rows: finding
-- parts: [part_asked_for, part_found_cross_tenant_hits]
-- since: "0.2"
-- ---

-- step: cross_tenant_hits
-- In the order in which they came about.
SELECT * FROM found_cross_tenant_hits
ORDER BY t, rid, giver_rid;
