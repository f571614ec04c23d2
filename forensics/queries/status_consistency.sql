-- ---
-- title: Refusals that ended well
-- question: Which requests did one worker reject, or fail, while their client was told that all went well?
-- parameters:
--   from: {type: instant, default: null, is: requests received at or after}
--   to: {type: instant, default: null, is: requests received before}
-- columns:
--   rid: the request
--   tenant: its tenant (pseudonym)
--   worker: who rejected it
--   role: its role
--   there: the status that it noted
--   why: {is: the reason that it noted}
--   status: what the client got
--   output_tokens: {is: tokens that the client got, unit: tokens}
--   started: when it was received
-- rows: finding
-- parts: [part_asked_for, part_answers]
-- since: "0.2"
-- ---
-- A status of 400 and more at one worker, and one below at the client.

SELECT q.rid, a.tenant, q.worker, q.role, coalesce(q.reject_status, q.status) AS there, coalesce(q.reject_reason, q.reason) AS why, a.status,
       a.output_tokens, a.started
FROM asked_for AS q
JOIN answers AS a ON a.rid = q.rid
WHERE coalesce(q.reject_status, q.status) >= '4' AND a.status < '4'
  AND ($from IS NULL OR a.started >= $from::TIMESTAMP) AND ($to IS NULL OR a.started < $to::TIMESTAMP)
ORDER BY a.started, q.rid, q.worker;
