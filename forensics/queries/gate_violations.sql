-- ---
-- title: Requests beyond a pool
-- question: Which requests were let in although a pool on their way cannot hold them?
-- parameters:
--   from: {type: instant, default: null, is: requests received at or after}
--   to: {type: instant, default: null, is: requests received before}
-- columns:
--   rid: the request
--   tenant: its tenant (pseudonym)
--   purpose: {is: what it was for, shown: false}
--   worker: whose pool is too small
--   role: its role
--   prompt_tokens: {is: length of its prompt, unit: tokens}
--   limit_tokens: {is: longest prompt that this worker can take, unit: tokens}
--   over_by: {is: how much longer it was, unit: tokens}
--   there: "what that worker did: `admit`, or `reject` and its status"
--   status: what the client got
--   output_tokens: {is: tokens that the client got, unit: tokens}
--   started: when it was received
-- rows: finding
-- parts: [part_asked_for, part_answers]
-- since: "0.2"
-- ---
-- Refused everywhere with that status is right, and no row here: only what ended in something else than a refusal.

SELECT q.rid, a.tenant, a.purpose, q.worker, q.role, q.prompt_tokens, q.limit_tokens, q.prompt_tokens - q.limit_tokens AS over_by,
       CASE WHEN q.rejected IS NOT NULL THEN 'reject ' || coalesce(q.reject_status, '') ELSE 'admit' END AS there,
       a.status, a.output_tokens, a.started
FROM asked_for AS q
JOIN answers AS a ON a.rid = q.rid
WHERE q.prompt_tokens > q.limit_tokens AND a.status IS DISTINCT FROM q.reject_status
  AND NOT (coalesce(a.status, '') LIKE '4%' AND coalesce(a.output_tokens, 0) = 0 AND a.first_token IS NULL)
  AND ($from IS NULL OR a.started >= $from::TIMESTAMP) AND ($to IS NULL OR a.started < $to::TIMESTAMP)
ORDER BY a.started, q.rid, q.worker;
