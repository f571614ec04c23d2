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
-- parts: [part_asked_for, part_answers, part_found_status_consistency]
-- since: "0.2"
-- ---

-- step: status_consistency
-- In the order in which they came about.
SELECT * FROM found_status_consistency
ORDER BY started, rid, worker;
