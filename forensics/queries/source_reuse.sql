-- ---
-- title: Reused sources
-- question: Which pages were given back, or given to others, while they were being read by a transfer?
-- parameters:
--   from: {type: instant, default: null, is: posts at or after}
--   to: {type: instant, default: null, is: posts before}
-- columns:
--   rid: whose transfer
--   worker: whose pages
--   pool: the component
--   pages: {is: pages that were given back too early, unit: pages}
--   page_list: {is: the pages, shown: false}
--   rewritten: {is: of them those that were written for somebody else before the transfer was done, unit: pages}
--   by_rid: who wrote them, one of them
--   posted: when the first was handed to the wire
--   done: when the last was done; null = its end is not known
--   freed: when the first was given back
-- rows: finding
-- parts: [part_asked_for, part_touched, part_found_source_reuse]
-- since: "0.2"
-- ---

-- step: source_reuse
-- In the order in which they came about.
SELECT * FROM found_source_reuse
ORDER BY posted, rid;
