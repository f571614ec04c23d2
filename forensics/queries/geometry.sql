-- ---
-- title: Geometry of handoffs
-- question: Which pairs of workers handed pages over although their pages are laid out differently?
-- parameters: {}
-- columns:
--   prefill: who wrote
--   decode: whose pages they were
--   pool: the component
--   field: what differs
--   at_prefill: its value there
--   at_decode: its value there
--   handoffs: {is: handoffs between them, unit: handoffs}
--   first: the first
--   last: the last
-- rows: finding
-- parts: [part_handoffs, part_found_geometry]
-- since: "0.2"
-- ---

-- step: geometry
-- In the order in which they came about.
SELECT * FROM found_geometry
ORDER BY first, prefill, decode, pool, field;
