-- ---
-- title: Late writes
-- question: Which writes landed, or may have, after the pages they were meant for had been given back?
-- parameters:
--   from: {type: instant, default: null, is: writes that were done at or after}
--   to: {type: instant, default: null, is: writes that were done before}
-- columns:
--   rid: whose content was written
--   decode: whose pages they are
--   pool: the component
--   pages: {is: pages of these batches, unit: pages}
--   page_list: {is: the pages, shown: false}
--   cause: why they had been given back
--   freed: when, by decode's clock
--   done: when the last of these writes was done, by the writer's clock
--   late_ms: {is: "how much later, by both clocks", unit: ms}
--   sure: "`by clock` where the clocks agree well enough to tell, `perhaps` where not"
--   next_rid: who got one of the pages next
--   next_read: "whether that one read it: `yes`, `no`, or null where nobody got it"
-- rows: finding
-- parts: [part_asked_for, part_touched, part_handoffs, part_found_late_writes]
-- since: "0.2"
-- ---

-- step: late_writes
-- In the order in which they came about.
SELECT * FROM found_late_writes
ORDER BY freed, rid, next_rid;
