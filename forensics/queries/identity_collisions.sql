-- ---
-- title: Names used twice
-- question: Which rooms, request ids or transfers were used by two requests at once?
-- parameters: {}
-- columns:
--   what: "`room`, `request id` or `transfer`"
--   name: the name
--   worker: where they met
--   rid: the one that had it first
--   other_rid: the one that had it beside it
--   tenants: {is: their tenants, unit: tenants}
--   since: when the second took it
--   until: when one of them ended; null = neither had
-- rows: finding
-- parts: [part_asked_for, part_found_identity_collisions]
-- since: "0.2"
-- ---

-- step: identity_collisions
-- In the order in which they came about.
SELECT * FROM found_identity_collisions
ORDER BY since, what, name, worker;
