-- ---
-- title: Early reads
-- question: Which pages were handed to the wire before they had been computed?
-- parameters:
--   from: {type: instant, default: null, is: posts at or after}
--   to: {type: instant, default: null, is: posts before}
-- columns:
--   rid: whose pages
--   worker: who posted them
--   pool: the component
--   pages: {is: pages that were posted before their write, unit: pages}
--   page_list: {is: the pages, shown: false}
--   posted: when the first of them was
--   post_seq: {is: its place in the worker's order, shown: false}
--   written: when the last of them was complete; null = never
--   early_ms: {is: how much earlier, unit: ms}
--   peer: who was to get them
-- rows: finding
-- parts: [part_asked_for, part_touched, part_found_early_reads]
-- since: "0.2"
-- ---

-- step: early_reads
-- In the order in which they came about.
SELECT * FROM found_early_reads
ORDER BY posted, rid;
