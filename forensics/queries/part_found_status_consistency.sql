-- ---
-- title: Refusals that ended well, the rows
-- part_of: status-consistency, detections
-- question: Which requests did one worker reject, or fail, while their client was told that all went well?
-- since: "0.2"
-- ---

-- step: found_status_consistency
-- A status of 400 and more at one worker, and one below at the client.
CREATE TEMP TABLE found_status_consistency AS
SELECT q.rid, a.tenant, q.worker, q.role, coalesce(q.reject_status, q.status) AS there, coalesce(q.reject_reason, q.reason) AS why, a.status,
       a.output_tokens, a.started
FROM asked_for AS q
JOIN answers AS a ON a.rid = q.rid
WHERE coalesce(q.reject_status, q.status) >= '4' AND a.status < '4'
  AND ($from IS NULL OR a.started >= $from::TIMESTAMP) AND ($to IS NULL OR a.started < $to::TIMESTAMP);
