-- ---
-- title: Requests, one row per worker
-- part_of: the library
-- question: Who asked for what, when did it end, and how?
-- since: "0.2"
-- ---

-- step: asked_for
-- One row per request on each worker that knew it, its rows folded. A reject is its end only where nothing followed.
CREATE TEMP TABLE asked_for AS
WITH
roles AS (SELECT worker, epoch, max(role) AS role FROM workers WHERE op = 'start' GROUP BY worker, epoch),
folded AS (
    SELECT worker, epoch, req,
           max(rid) AS rid, max(attempt) AS attempt, max(tenant) AS tenant, max(purpose) AS purpose, max(adapter) AS adapter,
           max(media) AS media, max(weights) AS weights, max(kv_format) AS kv_format, max(room) AS room,
           max(prompt_tokens) AS prompt_tokens, max(limit_tokens) AS limit_tokens,
           max(cached_tokens) AS cached_tokens, max(covered_tokens) AS covered_tokens,
           max(output_tokens) AS output_tokens, max(last_token) AS last_token,
           min(seq) FILTER (WHERE op = 'receive') AS received_seq, min(t) FILTER (WHERE op = 'receive') AS received,
           min(t) FILTER (WHERE op = 'admit') AS admitted, min(t) FILTER (WHERE op = 'reject') AS rejected,
           max(status) FILTER (WHERE op = 'reject') AS reject_status, max(reason) FILTER (WHERE op = 'reject') AS reject_reason,
           min(t) FILTER (WHERE op = 'commit') AS committed, min(t) FILTER (WHERE op = 'first_token') AS first_token,
           max(seq) FILTER (WHERE op IN ('finish', 'abort')) AS closed_seq,
           max(t) FILTER (WHERE op IN ('finish', 'abort')) AS closed,
           max(op) FILTER (WHERE op IN ('finish', 'abort')) AS close_op,
           max(status) FILTER (WHERE op IN ('finish', 'abort')) AS close_status,
           max(reason) FILTER (WHERE op IN ('finish', 'abort')) AS close_reason,
           max(seq) FILTER (WHERE op = 'reject') AS rejected_seq
    FROM requests
    WHERE req IS NOT NULL
    GROUP BY worker, epoch, req
)
SELECT f.worker, f.epoch, f.req, r.role, coalesce(f.rid, '?' || f.worker || '/' || f.epoch || '/' || f.req) AS rid,
       f.attempt, f.tenant, f.purpose, f.adapter, f.media, f.weights, f.kv_format, f.room, f.prompt_tokens, f.limit_tokens,
       f.cached_tokens, f.covered_tokens, f.output_tokens, f.last_token, f.received_seq, f.received, f.admitted,
       f.rejected, f.reject_status, f.reject_reason, f.committed, f.first_token,
       coalesce(f.closed_seq, f.rejected_seq) AS ended_seq, coalesce(f.closed, f.rejected) AS ended,
       coalesce(f.close_op, CASE WHEN f.rejected IS NOT NULL THEN 'reject' END) AS end_op,
       coalesce(f.close_status, f.reject_status) AS status, coalesce(f.close_reason, f.reject_reason) AS reason
FROM folded AS f
LEFT JOIN roles AS r USING (worker, epoch);
