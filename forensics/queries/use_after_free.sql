-- ---
-- title: Use after free
-- question: Which pages were given back while a request still read them?
-- parameters: {}
-- columns:
--   rid: the reader
--   worker: whose pages
--   pool: the component
--   pages: {is: pages, unit: pages}
--   page_list: {is: the pages, shown: false}
--   freed: when the first was given back
--   cause: why, as the row says
--   read_until: "when it stopped reading; null = it had not, at the end of the record"
--   taken_over: {is: of them those that somebody else got meanwhile, unit: pages}
--   by_rid: who got them, one of them
-- rows: finding
-- parts: [part_asked_for, part_touched, part_found_use_after_free]
-- since: "0.2"
-- ---

-- step: use_after_free
-- In the order in which they came about.
SELECT * FROM found_use_after_free
ORDER BY freed, rid;
