-- ---
-- title: Tenants to notify
-- question: Who has to be told, that their content was exposed or that their answers were contaminated?
-- parameters:
--   from: {type: instant, default: null, is: responses that started at or after}
--   to: {type: instant, default: null, is: responses that started before}
--   exclude: {type: text, default: "engineering,research", is: "purposes whose answers concern no customer, separated by commas"}
-- columns:
--   tenant: whom to tell (pseudonym; null = not known)
--   because: "`content exposed` (others read what was theirs) or `answer contaminated` (theirs were made from others' content)"
--   responses: {is: "answers of this tenant that are contaminated, or answers that its content went into", unit: responses}
--   other_tenants: {is: "whose content it was, or who read it", unit: tenants}
--   within_own: {is: of these responses those where reader and donor are of this same tenant, unit: responses}
--   proof: "`proved` where one finding is, `inferred` where a clock took part in all"
--   first: when the first of these responses began
--   last: when the last of these responses began
-- judges: true
-- rows: finding
-- parts: []
-- since: "0.2"
-- ---
-- Two lists in one: the same tenant may stand in both. Content read by an excluded purpose was exposed all the same.

WITH contaminated AS (
    SELECT f.rid, f.tenant, f.donor_tenant, f.proof, r.purpose, r.started
    FROM findings AS f
    JOIN responses AS r ON r.rid = f.rid AND r.verdict = 'contaminated'
    WHERE f.kind = 'foreign' AND f.delivered = 'yes'
      AND ($from IS NULL OR r.started >= $from::TIMESTAMP) AND ($to IS NULL OR r.started < $to::TIMESTAMP)
)
SELECT donor_tenant AS tenant, 'content exposed' AS because, count(DISTINCT rid) AS responses,
       count(DISTINCT tenant) FILTER (WHERE tenant <> donor_tenant) AS other_tenants,
       count(DISTINCT rid) FILTER (WHERE tenant = donor_tenant) AS within_own,
       max(proof) AS proof, min(started) AS first, max(started) AS last
FROM contaminated
GROUP BY donor_tenant
UNION ALL
SELECT tenant, 'answer contaminated', count(DISTINCT rid),
       count(DISTINCT donor_tenant) FILTER (WHERE donor_tenant <> tenant),
       count(DISTINCT rid) FILTER (WHERE donor_tenant = tenant), max(proof), min(started), max(started)
FROM contaminated
WHERE NOT list_contains(string_split($exclude, ','), purpose)
GROUP BY tenant
ORDER BY because, responses DESC, tenant;
