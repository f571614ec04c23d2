-- ---
-- title: Gaps
-- question: Which rows of the ledger are missing, and whose tails are open?
-- parameters: {}
-- columns:
--   worker: whose chain
--   epoch: which life of the worker
--   table: the ledger's table
--   pool: the pool, where the table has chains per pool
--   after_seq: the last row before the gap
--   before_seq: the first row after it; null = open end
--   after_t: time of the last row before
--   before_t: time of the first row after
--   reason: why they are missing
-- since: "0.1"
-- ---
-- `gaps` is what the ledger's reader derives from the `prev` chains; this statement only puts it in order.

SELECT worker, epoch, "table", pool, after_seq, before_seq, after_t, before_t, reason
FROM gaps
ORDER BY worker, epoch, "table", pool NULLS FIRST, after_seq;
