-- ---
-- title: Double owners
-- question: Which pages belonged to two requests at once, or were given back twice?
-- parameters: {}
-- columns:
--   worker: whose pages
--   pool: the component
--   what: "`two owners` or `freed twice`"
--   rid: the first owner
--   other_rid: the second owner, or whoever gave it back again
--   pages: {is: pages, unit: pages}
--   page_list: {is: the pages, shown: false}
--   since: when the second became an owner, or it was given back again
--   until: {is: "when the first gave it back; null = never", shown: false}
-- rows: finding
-- parts: [part_asked_for, part_touched, part_tenures, part_found_double_owners]
-- since: "0.2"
-- ---

-- step: double_owners
-- In the order in which they came about.
SELECT * FROM found_double_owners
ORDER BY since, worker, rid, other_rid;
