-- ---
-- title: Geometry of handoffs, the rows
-- part_of: geometry, detections
-- question: Which pairs of workers handed pages over although their pages are laid out differently?
-- since: "0.2"
-- ---

-- step: found_geometry
-- Ranks share a page: its bytes are compared for all ranks of a worker together.
CREATE TEMP TABLE found_geometry AS
WITH said AS (
    SELECT w.worker, w.epoch, w.pool, max(w.page_tokens) AS page_tokens, max(w.page_bytes) * max(coalesce(s.tp_size, 1)) AS page_bytes,
           max(w.kv_format) AS kv_format, max(w.layers) AS layers, max(w.kv_heads) AS kv_heads, max(w.head_dim) AS head_dim
    FROM workers AS w
    LEFT JOIN (SELECT worker, epoch, max(tp_size) AS tp_size FROM workers GROUP BY worker, epoch) AS s USING (worker, epoch)
    WHERE w.op = 'config' GROUP BY w.worker, w.epoch, w.pool
),
pairs AS (
    SELECT h.mover AS prefill, h.decode, h.pool, count(*) AS handoffs, min(h.granted) AS first, max(h.granted) AS last,
           max(h.decode_epoch) AS decode_epoch
    FROM handoffs AS h WHERE h.mover IS NOT NULL GROUP BY h.mover, h.decode, h.pool
),
compared AS (
    SELECT p.*, f.field, f.at_prefill, f.at_decode
    FROM pairs AS p
    JOIN said AS a ON a.worker = p.prefill AND a.pool = p.pool
    JOIN said AS b ON b.worker = p.decode AND b.pool = p.pool AND b.epoch = p.decode_epoch,
    LATERAL (VALUES ('page_tokens', CAST(a.page_tokens AS VARCHAR), CAST(b.page_tokens AS VARCHAR)),
                    ('page_bytes', CAST(a.page_bytes AS VARCHAR), CAST(b.page_bytes AS VARCHAR)),
                    ('kv_format', a.kv_format, b.kv_format),
                    ('layers', CAST(a.layers AS VARCHAR), CAST(b.layers AS VARCHAR)),
                    ('kv_heads', CAST(a.kv_heads AS VARCHAR), CAST(b.kv_heads AS VARCHAR)),
                    ('head_dim', CAST(a.head_dim AS VARCHAR), CAST(b.head_dim AS VARCHAR))) AS f(field, at_prefill, at_decode)
)
SELECT DISTINCT prefill, decode, pool, field, at_prefill, at_decode, handoffs, first, last
FROM compared
WHERE at_prefill IS DISTINCT FROM at_decode AND at_prefill IS NOT NULL AND at_decode IS NOT NULL;
