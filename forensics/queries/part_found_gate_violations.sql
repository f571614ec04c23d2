-- ---
-- title: Requests beyond a pool, the rows
-- part_of: gate-violations, detections
-- question: Which requests were let in although a pool on their way cannot hold them?
-- since: "0.2"
-- ---

-- step: found_gate_violations
-- Refused everywhere with that status is right, and no row here: only what ended in something else than a refusal.
CREATE TEMP TABLE found_gate_violations AS
SELECT q.rid, a.tenant, a.purpose, q.worker, q.role, q.prompt_tokens, q.limit_tokens, q.prompt_tokens - q.limit_tokens AS over_by,
       CASE WHEN q.rejected IS NOT NULL THEN 'reject ' || coalesce(q.reject_status, '') ELSE 'admit' END AS there,
       a.status, a.output_tokens, a.started
FROM asked_for AS q
JOIN answers AS a ON a.rid = q.rid
WHERE q.prompt_tokens > q.limit_tokens AND a.status IS DISTINCT FROM q.reject_status
  AND NOT (coalesce(a.status, '') LIKE '4%' AND coalesce(a.output_tokens, 0) = 0 AND a.first_token IS NULL)
  AND ($from IS NULL OR a.started >= $from::TIMESTAMP) AND ($to IS NULL OR a.started < $to::TIMESTAMP);
