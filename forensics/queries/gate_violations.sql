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
-- parts: [part_asked_for, part_answers, part_found_gate_violations]
-- since: "0.2"
-- ---

-- step: gate_violations
-- In the order in which they came about.
SELECT * FROM found_gate_violations
ORDER BY started, rid, worker;
