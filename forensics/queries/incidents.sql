-- ---
-- title: Incidents
-- question: How many causes are there behind all that was found, how bad is each, and is it over?
-- parameters:
--   from: {type: instant, default: null, is: events at or after}
--   to: {type: instant, default: null, is: events before}
--   after: {type: duration, default: 1s, is: "of leaks: how long the owner must have ended before the end of the record"}
--   held_share: {type: number, default: 0.3, is: "D9: share of a pool that may be held"}
--   floor_us_per_token: {type: number, default: 1, is: "D7: the least time for a token that is not cached, microseconds"}
--   quiet: {type: duration, default: 24h, is: what comes longer after the last of a cause is an incident of its own}
--   recent: {type: duration, default: 10m, is: "growing means that something came so long before the end of the record, or later"}
-- columns:
--   id: "the same for the same cause, whatever comes later: of the cause and when the first of its responses ended, or its first detection came"
--   severity: "critical: another tenant's content in an answer; high: the same tenant's, or content of nobody's; medium: exposed, or unknown; low: nothing of anybody's was read"
--   cause: "mechanism M1 to M14 or P0, `record lost`, `mechanism unknown`, or the detector alone"
--   first: when its first response began, or its first detection came
--   last: the same of the last
--   growing: "`yes` or `no`"
--   responses: {is: responses concerned, unit: responses}
--   contaminated: {is: of them, unit: responses}
--   corrupt: {is: of them, unit: responses}
--   exposed: {is: of them, unit: responses}
--   unknown: {is: of them, unit: responses}
--   tenants: {is: tenants of the contaminated ones, unit: tenants}
--   donor_tenants: {is: tenants whose content it was, unit: tenants}
--   detectors: which detectors saw it
--   detections: {is: what they saw, unit: detections}
--   workers: where it was read, or seen
--   rids: {is: the responses concerned, shown: false}
-- judges: true
-- rows: finding
-- parts: [part_asked_for, part_answers, part_touched, part_tenures, part_handoffs, part_found_gate_violations, part_found_status_consistency, part_found_transfer_mismatch, part_found_double_owners, part_found_leaks, part_found_cross_tenant_hits, part_found_identity_collisions, part_found_geometry, part_found_late_writes, part_found_early_reads, part_found_source_reuse, part_found_use_after_free, part_detections]
-- since: "0.2"
-- ---

-- step: concerned
-- Verdicts that are not clean, and detections; a detection about a response that has a verdict belongs to that one's cause.
CREATE TEMP TABLE concerned AS
WITH
told AS (
    SELECT r.rid, r.verdict, r.tenant, r.started AS t, coalesce(r.finished, r.started) AS known,
           CASE WHEN r.verdict = 'unknown' AND r.mechanism IN ('', 'mechanism unknown') THEN 'record lost'
                WHEN r.mechanism = '' THEN 'mechanism unknown' ELSE r.mechanism END AS cause
    FROM responses AS r WHERE r.verdict <> 'clean'
),
by_verdict AS (
    SELECT t.cause, t.t, t.known, t.rid, t.verdict, t.tenant, f.donor_tenant, f.worker, NULL AS detector
    FROM told AS t LEFT JOIN findings AS f ON f.rid = t.rid AND f.kind <> 'clean'
),
by_detector AS (
    SELECT coalesce(a.cause, b.cause, 'detector ' || d.detector) AS cause,
           CASE WHEN a.cause IS NOT NULL THEN a.t WHEN b.cause IS NOT NULL THEN b.t ELSE d.t END AS t, coalesce(a.known, b.known, d.t) AS known,
           coalesce(a.rid, b.rid, d.rid) AS rid, NULL AS verdict, NULL AS tenant, NULL AS donor_tenant, d.worker, d.detector
    FROM all_detections AS d
    LEFT JOIN told AS a ON a.rid = d.rid
    LEFT JOIN told AS b ON b.rid = d.other_rid
)
SELECT * FROM by_verdict UNION ALL SELECT * FROM by_detector;

-- step: episodes
-- A cause that was quiet for long and comes back is another incident.
CREATE TEMP TABLE episodes AS
WITH
spaced AS (
    SELECT *, CASE WHEN t - lag(t) OVER (PARTITION BY cause ORDER BY t) > $quiet THEN 1 ELSE 0 END AS begins FROM concerned
)
SELECT *, sum(begins) OVER (PARTITION BY cause ORDER BY t ROWS UNBOUNDED PRECEDING) AS episode FROM spaced;

-- step: incidents
-- The gravest first. An incident is named by its cause and when the first of its responses ended: one that began earlier and
-- ends later, as the record grows, leaves the name as it is.
WITH
ends AS (SELECT max(t) AS last FROM (SELECT t FROM requests UNION ALL SELECT t FROM gauges UNION ALL SELECT t FROM pages) AS rows),
folded AS (
    SELECT cause, episode, min(known) AS known, min(t) AS first, max(t) AS last, count(DISTINCT rid) AS responses,
           count(DISTINCT rid) FILTER (WHERE verdict = 'contaminated') AS contaminated, count(DISTINCT rid) FILTER (WHERE verdict = 'corrupt') AS corrupt,
           count(DISTINCT rid) FILTER (WHERE verdict = 'exposed') AS exposed, count(DISTINCT rid) FILTER (WHERE verdict = 'unknown') AS unknown,
           count(DISTINCT tenant) FILTER (WHERE verdict = 'contaminated') AS tenants, count(DISTINCT donor_tenant) AS donor_tenants,
           bool_or(verdict = 'contaminated' AND donor_tenant IS DISTINCT FROM tenant AND donor_tenant IS NOT NULL) AS crosses,
           list_sort(list_distinct(list(detector) FILTER (WHERE detector IS NOT NULL))) AS detectors, count(detector) AS detections,
           list_sort(list_distinct(list(worker) FILTER (WHERE worker IS NOT NULL))) AS workers,
           list_sort(list_distinct(list(rid) FILTER (WHERE rid IS NOT NULL))) AS rids
    FROM episodes GROUP BY cause, episode
)
SELECT 'I-' || substr(md5(cause || '|' || coalesce(CAST(known AS VARCHAR), '')), 1, 8) AS id,
       CASE WHEN crosses THEN 'critical' WHEN contaminated + corrupt > 0 THEN 'high' WHEN exposed + unknown > 0 THEN 'medium' ELSE 'low' END AS severity,
       cause, first, f.last, CASE WHEN e.last - f.last <= $recent THEN 'yes' ELSE 'no' END AS growing, responses, contaminated, corrupt, exposed,
       unknown, tenants, donor_tenants, coalesce(detectors, []) AS detectors, detections, coalesce(workers, []) AS workers, coalesce(rids, []) AS rids
FROM folded AS f CROSS JOIN ends AS e
WHERE ($from IS NULL OR f.last >= $from::TIMESTAMP) AND ($to IS NULL OR first < $to::TIMESTAMP)
ORDER BY list_position(['critical', 'high', 'medium', 'low'], severity), contaminated DESC, first, cause;
