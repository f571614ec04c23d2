-- ---
-- title: Handoffs, one row per transfer and pool
-- part_of: the library
-- question: What was reserved, asked for, posted, done and committed, in each component?
-- since: "0.2"
-- ---

-- step: handoffs
-- Copies within a worker have no grant and are none of these. Pages count by their place in the request's table.
CREATE TEMP TABLE handoffs AS
WITH
granted AS (
    SELECT xfer, coalesce(dst_pool, 'kv') AS pool, min(room) AS room, min(worker) AS decode, min(epoch) AS decode_epoch,
           min(req) AS decode_req, min(t) AS granted, min(seq) AS grant_seq, sum(n) AS reserved, sum(asked) AS asked,
           max(tokens) AS tokens, min(dst_tag) AS dst_tag, min(peer) AS prefill, min(pos) AS pos
    FROM transfers WHERE op = 'grant' GROUP BY xfer, coalesce(dst_pool, 'kv')
),
moved AS (
    SELECT xfer, coalesce(dst_pool, 'kv') AS pool, min(worker) AS mover,
           sum(n) FILTER (WHERE op = 'post') AS posted, sum(n) FILTER (WHERE op = 'done') AS done,
           sum(n) FILTER (WHERE op = 'fail') AS failed, count(*) FILTER (WHERE op = 'post') AS batches,
           min(t) FILTER (WHERE op = 'post') AS first_post, max(t) FILTER (WHERE op = 'post') AS last_post,
           max(t) FILTER (WHERE op = 'done') AS last_done, sum(bytes) FILTER (WHERE op = 'done') AS bytes
    FROM transfers
    WHERE op IN ('post', 'done', 'fail') AND peer IS DISTINCT FROM worker
    GROUP BY xfer, coalesce(dst_pool, 'kv')
),
acked AS (
    SELECT xfer, min(t) FILTER (WHERE op = 'ack' AND status = 'received' AND outstanding = 0) AS drained,
           min(t) FILTER (WHERE op = 'ack' AND status = 'sent' AND outstanding = 0) AS drain_sent,
           min(t) FILTER (WHERE op = 'abort') AS aborted, min(t) FILTER (WHERE op = 'expire') AS expired,
           max(outstanding) FILTER (WHERE op = 'ack') AS most_outstanding
    FROM transfers WHERE op IN ('ack', 'abort', 'expire') GROUP BY xfer
),
believed AS (
    SELECT xfer, pool, max(tokens) AS receipt_tokens, sum(n) AS receipt_pages
    FROM pages WHERE op = 'receipt' GROUP BY xfer, pool
)
SELECT g.*, coalesce(m.posted, 0) AS posted, coalesce(m.done, 0) AS done, coalesce(m.failed, 0) AS failed,
       coalesce(m.batches, 0) AS batches, m.mover, m.first_post, m.last_post, m.last_done, m.bytes,
       a.drained, a.drain_sent, a.aborted, a.expired, a.most_outstanding, b.receipt_tokens, b.receipt_pages
FROM granted AS g
LEFT JOIN moved AS m USING (xfer, pool)
LEFT JOIN acked AS a USING (xfer)
LEFT JOIN believed AS b USING (xfer, pool);
