-- ---
-- title: Coverage of components
-- question: Of which handoffs was every component there, and of which only some?
-- parameters:
--   from: {type: instant, default: null, is: grants at or after}
--   to: {type: instant, default: null, is: grants before}
--   rid: {type: text, default: null, is: only this request}
-- columns:
--   rid: the request
--   committed: "whether decode read it: `yes` or `no`"
--   components: {is: components that were granted, unit: components}
--   whole: {is: of them those whose every page arrived, unit: components}
--   lacking: "the others, with pages that arrived of pages granted"
--   granted: when
-- rows: fact
-- parts: [part_asked_for, part_handoffs]
-- since: "0.2"
-- ---
-- Handoffs of which something lacks stand first.

SELECT a.rid, CASE WHEN a.committed IS NOT NULL THEN 'yes' ELSE 'no' END AS committed, count(*) AS components,
       count(*) FILTER (WHERE h.done >= h.reserved) AS whole,
       string_agg(h.pool || ' ' || h.done || ' of ' || h.reserved, ', ' ORDER BY h.pool) FILTER (WHERE h.done < h.reserved) AS lacking,
       min(h.granted) AS granted
FROM handoffs AS h
LEFT JOIN asked_for AS a ON a.worker = h.decode AND a.epoch = h.decode_epoch AND a.req = h.decode_req
WHERE ($from IS NULL OR h.granted >= $from::TIMESTAMP) AND ($to IS NULL OR h.granted < $to::TIMESTAMP) AND ($rid IS NULL OR a.rid = $rid)
GROUP BY a.rid, a.committed, h.xfer
ORDER BY whole = components, granted, a.rid;
