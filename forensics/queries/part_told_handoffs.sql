-- ---
-- title: Handoffs as logs tell them, one row per answer
-- part_of: bound
-- question: How long was the prompt on each side, what was moved, and did a token leave?
-- since: "0.3"
-- ---

-- step: told_requests
-- One row per request and worker. What stands on its end row is the length that this worker worked on.
CREATE TEMP TABLE told_requests AS
WITH
roles AS (SELECT worker, epoch, max(role) AS role FROM workers GROUP BY worker, epoch),
limits AS (SELECT worker, epoch, min(prompt_limit_tokens) AS limit_tokens FROM workers WHERE op = 'config' GROUP BY worker, epoch),
folded AS (
    SELECT worker, epoch, req, max(rid) AS rid, max(room) AS room, max(prompt_tokens) AS prompt_tokens,
           min(prompt_tokens) FILTER (WHERE op IN ('finish', 'abort')) AS end_tokens,
           max(covered_tokens) FILTER (WHERE op = 'receive') AS covered_tokens, min(limit_tokens) AS limit_tokens,
           max(cached_tokens) AS cached_tokens, max(output_tokens) AS output_tokens, max(last_token) AS last_token,
           max(status) FILTER (WHERE op IN ('finish', 'abort')) AS status,
           max(status) FILTER (WHERE op = 'reject') AS reject_status,
           bool_or(op = 'first_token') AS has_first_token,
           min(t) FILTER (WHERE op = 'receive') AS started, max(t) AS ended
    FROM requests
    WHERE req IS NOT NULL
    GROUP BY worker, epoch, req
)
SELECT f.* EXCLUDE (limit_tokens), coalesce(f.limit_tokens, l.limit_tokens) AS limit_tokens, r.role
FROM folded AS f
LEFT JOIN roles AS r USING (worker, epoch)
LEFT JOIN limits AS l USING (worker, epoch);

-- step: told_moves
-- What prefill counted as moved, and what decode had asked for, per handoff; by the room, or by the request of the row.
CREATE TEMP TABLE told_moves AS
SELECT coalesce(x.room, q.room) AS room, coalesce(q.rid, '') AS rid,
       TRY_CAST(sum(x.bytes) FILTER (WHERE x.op = 'done') AS BIGINT) AS bytes,
       CAST(sum(x.n) FILTER (WHERE x.op = 'done' AND coalesce(x.dst_pool, 'kv') = 'kv') AS BIGINT) AS done_pages,
       max(x.t) FILTER (WHERE x.op = 'done') AS moved_at
FROM transfers AS x
LEFT JOIN told_requests AS q USING (worker, epoch, req)
WHERE x.op = 'done' AND x.peer IS DISTINCT FROM x.worker
GROUP BY coalesce(x.room, q.room), coalesce(q.rid, '');

-- step: told_grants
CREATE TEMP TABLE told_grants AS
SELECT room, CAST(sum(asked) AS BIGINT) AS asked_pages FROM transfers
WHERE op = 'grant' AND room IS NOT NULL AND coalesce(dst_pool, 'kv') = 'kv' GROUP BY room;

-- step: told_pools
-- The pool of each worker that answers.
CREATE TEMP TABLE told_pools AS
SELECT worker, epoch, max(pool_pages) AS pool_pages, max(page_tokens) AS page_tokens, max(page_bytes) AS page_bytes
FROM workers WHERE op = 'config' AND coalesce(pool, 'kv') = 'kv' GROUP BY worker, epoch;

-- step: told_sides
-- A handoff is known by its room; where a worker was not told the room, by the rid.
CREATE TEMP TABLE told_sides AS
WITH named AS (SELECT rid, max(room) AS room FROM told_requests WHERE rid IS NOT NULL GROUP BY rid)
SELECT q.*, coalesce(CAST(coalesce(q.room, n.room) AS VARCHAR), q.rid, '?' || q.worker || '/' || q.epoch || '/' || q.req) AS handoff
FROM told_requests AS q
LEFT JOIN named AS n USING (rid);

-- step: told_alarms
-- Failed checks of the engine's own that name a request.
CREATE TEMP TABLE told_alarms AS
SELECT s.handoff, count(*) AS alarms FROM checks AS c JOIN told_sides AS s USING (worker, epoch, req)
WHERE c.op = 'mismatch' GROUP BY s.handoff;

-- step: told_pairs
-- Prefill's side and the side that answers: the gateway's word for what the client got, decode's for the rest.
CREATE TEMP TABLE told_pairs AS
WITH answers AS (
    SELECT handoff, max(rid) AS rid, max(room) AS room, max(prompt_tokens) AS prompt_tokens,
           coalesce(max(end_tokens) FILTER (WHERE role IS DISTINCT FROM 'gateway'), max(prompt_tokens)) AS answer_tokens,
           max(covered_tokens) AS covered_tokens, max(cached_tokens) FILTER (WHERE role IS DISTINCT FROM 'gateway') AS cached_tokens,
           max(output_tokens) AS output_tokens, bool_or(has_first_token OR last_token IS NOT NULL) AS has_token,
           coalesce(max(status) FILTER (WHERE role = 'gateway'), max(status), max(reject_status)) AS status,
           min(started) AS started, max(ended) AS ended,
           max(worker) FILTER (WHERE role IS DISTINCT FROM 'gateway') AS worker,
           max(epoch) FILTER (WHERE role IS DISTINCT FROM 'gateway') AS epoch,
           max(role) FILTER (WHERE role IS DISTINCT FROM 'gateway') AS role
    FROM told_sides WHERE role IS DISTINCT FROM 'prefill' GROUP BY handoff
),
prefills AS (
    SELECT handoff, max(prompt_tokens) AS prompt_tokens, min(end_tokens) AS prefill_tokens, min(limit_tokens) AS limit_tokens
    FROM told_sides WHERE role = 'prefill' GROUP BY handoff
),
least AS (SELECT min(limit_tokens) AS limit_tokens FROM told_sides WHERE role = 'prefill')
SELECT a.handoff, a.rid, a.room, greatest(a.prompt_tokens, p.prompt_tokens) AS prompt_tokens, a.answer_tokens, a.covered_tokens,
       greatest(coalesce(a.answer_tokens, a.prompt_tokens, p.prompt_tokens) - coalesce(a.cached_tokens, 0), 0) AS handed_tokens,
       p.prefill_tokens, coalesce(p.limit_tokens, l.limit_tokens) AS limit_tokens, a.output_tokens, a.status, a.started, a.ended,
       a.worker, a.epoch, a.role, coalesce(a.output_tokens > 0, a.has_token OR a.status IS NULL OR a.status = '200') AS answered
FROM answers AS a
LEFT JOIN prefills AS p USING (handoff)
CROSS JOIN least AS l;

-- step: told_handoffs
-- Where no page has a known size in bytes, handoffs whose two sides agree on the length are the measure. Against the
-- leanest of them, itself included, a handoff is short for certain; against the leanest of the others it may be. Units are
-- pages, or tokens where no source says the size of a page. A logged total is good to 5,243 bytes up or down.
CREATE TEMP TABLE told_handoffs AS
WITH
moved AS (
    SELECT p.*, m.bytes AS moved_bytes, m.done_pages, g.asked_pages, m.moved_at, o.pool_pages, o.page_bytes,
           CAST(ceil(p.handed_tokens / o.page_tokens) AS BIGINT) AS pages,
           p.prefill_tokens = p.answer_tokens AND p.prompt_tokens <= p.limit_tokens AND m.bytes > 0 AND p.handed_tokens > 0 AS agrees
    FROM told_pairs AS p
    LEFT JOIN told_moves AS m ON m.room = p.room OR (m.room IS NULL AND p.room IS NULL AND m.rid = p.rid)
    LEFT JOIN told_grants AS g ON g.room = p.room
    LEFT JOIN told_pools AS o ON o.worker = p.worker AND o.epoch = p.epoch
),
rated AS (SELECT *, coalesce(pages, handed_tokens) AS units, (moved_bytes - 5243) / coalesce(pages, handed_tokens) AS rate FROM moved),
lean AS (
    SELECT worker, min(rate) AS least, list_extract(list_sort(list(rate)), 2) AS second FROM rated WHERE agrees GROUP BY worker
),
measured AS (
    SELECT r.*, CASE WHEN page_bytes IS NOT NULL AND pages IS NOT NULL THEN pages * page_bytes
                     ELSE CAST(floor(units * l.least) AS BIGINT) - 5243 END AS needed_bytes,
           CASE WHEN agrees AND rate = l.least THEN l.second ELSE l.least END AS others_rate
    FROM rated AS r
    LEFT JOIN lean AS l USING (worker)
),
weighed AS (
    SELECT *, coalesce(moved_bytes < needed_bytes, false) OR coalesce(done_pages < asked_pages, false) AS is_short,
           coalesce(moved_bytes < needed_bytes, false) OR coalesce(done_pages < asked_pages, false) OR (page_bytes IS NULL AND moved_bytes > 0 AND moved_bytes + 5243 < units * others_rate) AS may_be_short,
           CASE WHEN pages IS NOT NULL THEN coalesce(page_bytes, others_rate) END AS bytes_a_page
    FROM measured
)
SELECT *, agrees AND NOT coalesce(may_be_short, false) AS is_whole,
       CASE WHEN done_pages IS NOT NULL AND asked_pages IS NOT NULL THEN greatest(asked_pages - done_pages, 0)
            WHEN prefill_tokens = 1 AND prompt_tokens > 1 THEN pages - 1
            WHEN moved_bytes IS NOT NULL AND bytes_a_page > 0 THEN greatest(pages - CAST(ceil(moved_bytes / bytes_a_page) AS BIGINT), 0) END AS unfilled_pages
FROM weighed;
