-- ---
-- title: Detections
-- question: What has any detector seen, as the engines ran or in the record afterwards?
-- parameters:
--   from: {type: instant, default: null, is: events at or after}
--   to: {type: instant, default: null, is: events before}
--   after: {type: duration, default: 1s, is: "of leaks: how long the owner must have ended before the end of the record"}
--   held_share: {type: number, default: 0.3, is: "D9: share of a pool that may be held"}
--   floor_us_per_token: {type: number, default: 1, is: "D7: the least time for a token that is not cached, microseconds"}
-- columns:
--   detector: "D1 to D9, K, U, G, O, A (docs/detectors.md)"
--   source: "`check` (an engine, as it ran) or `record` (this ledger, afterwards)"
--   worker: where
--   pool: which pool
--   rid: about whom
--   other_rid: and who else
--   t: when
--   what: what it says
-- rows: finding
-- parts: [part_asked_for, part_answers, part_touched, part_tenures, part_handoffs, part_found_gate_violations, part_found_status_consistency, part_found_transfer_mismatch, part_found_double_owners, part_found_leaks, part_found_cross_tenant_hits, part_found_identity_collisions, part_found_geometry, part_found_late_writes, part_found_early_reads, part_found_source_reuse, part_found_use_after_free, part_detections]
-- since: "0.2"
-- ---

-- step: listed
-- In the order in which they came about.
SELECT detector, source, worker, pool, rid, other_rid, t, what
FROM all_detections
WHERE ($from IS NULL OR t >= $from::TIMESTAMP) AND ($to IS NULL OR t < $to::TIMESTAMP)
ORDER BY t, detector, worker, rid, other_rid, what;
