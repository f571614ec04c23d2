-- ---
-- title: Leaks
-- question: Which pages belong to requests that have ended, and are neither free, held, cached nor shared?
-- parameters:
--   after: {type: duration, default: 1s, is: how long its owner must have ended before the end of the record}
-- columns:
--   worker: whose pages
--   pool: the component
--   rid: the owner that has ended
--   ended: when
--   end_op: finish or abort
--   pages: {is: pages that did not come back, unit: pages}
--   page_list: {is: the pages, shown: false}
--   for_s: {is: "since when, until the end of the record", unit: s}
-- rows: finding
-- parts: [part_asked_for, part_touched, part_tenures, part_found_leaks]
-- since: "0.2"
-- ---

-- step: leaks
-- In the order in which they came about.
SELECT * FROM found_leaks
ORDER BY ended, worker, rid;
