-- ---
-- title: Bounds on exposed responses
-- question: Without a record of pages, which responses may have read what their handoff had not filled?
-- parameters:
--   from: {type: instant, default: null, is: requests received at or after}
--   to: {type: instant, default: null, is: requests received before}
--   without: {type: text, default: "", is: "rids to leave out, such as an operator's own tests, divided by commas"}
--   late_for_s: {type: number, default: null, is: "how long after a release by timeout a write may still land, seconds; none: until the end of the record"}
-- columns:
--   rid: the request
--   bound: "`least`: it read another request's text for certain; `unfilled`: it read pages that nobody had filled for it; `possible`: nothing rules it out"
--   rules: which rules it falls under, as `forensics bound` explains them
--   room: {is: its handoff, shown: false}
--   worker: which worker answered
--   prompt_tokens: {is: length of its prompt, unit: tokens}
--   prefill_tokens: {is: length that prefill worked on, unit: tokens}
--   limit_tokens: {is: longest prompt that prefill can take, unit: tokens}
--   moved_bytes: {is: what prefill counted as moved, unit: bytes}
--   needed_bytes: {is: the least that its length needs, unit: bytes}
--   unfilled_pages: {is: "pages that it attended to and that the handoff did not fill, or may not have", unit: pages}
--   output_tokens: {is: tokens that the client got, unit: tokens}
--   status: what the client got
--   started: when it was received
-- rows: fact
-- parts: [part_told_handoffs]
-- since: "0.3"
-- ---

-- step: filled_before
-- Pages that whole handoffs held at one time: distinct pages of one pool that had been written. Log times are cut to the
-- second, so each holding is shortened by one at both ends.
CREATE TEMP TABLE filled_before AS
WITH whole AS (
    SELECT worker, pages, moved_at + INTERVAL 1 SECOND AS held_from, ended - INTERVAL 1 SECOND AS held_to
    FROM told_handoffs
    WHERE is_whole AND worker IS NOT NULL AND moved_at IS NOT NULL AND pages IS NOT NULL
),
turns AS (
    SELECT worker, held_from AS t, pages FROM whole WHERE held_to > held_from
    UNION ALL SELECT worker, held_to AS t, -pages FROM whole WHERE held_to > held_from
),
at_once AS (
    SELECT worker, t, sum(pages) OVER (PARTITION BY worker ORDER BY t, pages ROWS UNBOUNDED PRECEDING) AS pages FROM turns
)
SELECT worker, held_from AS t, pages FROM whole
UNION ALL SELECT worker, t, pages FROM at_once;

-- step: named_handoffs
-- Where a recorder names the pages that decode opened for a handoff: them, and how many of the first each mover filled,
-- the one that filled fewest and the one that filled most. A handoff that was filled otherwise than from its first page
-- on, or elsewhere than where it was opened, is left out.
CREATE TEMP TABLE named_handoffs AS
WITH
by_mover AS (
    SELECT room, CAST(sum(n) AS BIGINT) AS filled, max(coalesce(pos, 0) + n) AS reached, max(coalesce(parts, 1)) AS parts,
           CASE WHEN count(dst_pages) = count(*) THEN flatten(list(dst_pages ORDER BY coalesce(pos, 0))) END AS named
    FROM transfers
    WHERE op = 'done' AND room IS NOT NULL AND coalesce(dst_pool, 'kv') = 'kv' AND peer IS DISTINCT FROM worker
    GROUP BY room, worker, epoch
),
moved AS (
    SELECT room, min(filled) AS least, max(filled) AS most, any_value(named) AS named FROM by_mover
    GROUP BY room HAVING bool_and(filled = reached AND parts = 1)
),
opened AS (
    SELECT room, worker, epoch, max(req) AS req, max(seq) AS seq, any_value(dst_pages) AS pages
    FROM transfers WHERE op = 'grant' AND room IS NOT NULL AND dst_pages IS NOT NULL AND coalesce(dst_pool, 'kv') = 'kv'
    GROUP BY room, worker, epoch HAVING count(*) = 1
),
taken AS (SELECT worker, epoch, req, min(seq) AS seq FROM requests WHERE op = 'commit' GROUP BY worker, epoch, req)
SELECT o.room, o.worker, o.epoch, o.seq, o.pages, m.least, m.most, t.seq AS taken,
       count(*) OVER (PARTITION BY o.worker, o.epoch, coalesce(q.rid, '?' || o.room) ORDER BY o.seq) AS attempt
FROM opened AS o
JOIN moved AS m ON m.room = o.room AND coalesce(m.named = o.pages[1:m.most], true)
LEFT JOIN taken AS t ON t.worker = o.worker AND t.epoch = o.epoch AND t.req = o.req
LEFT JOIN told_requests AS q ON q.worker = o.worker AND q.epoch = o.epoch AND q.req = o.req
WHERE NOT EXISTS (SELECT 1 FROM pages AS p WHERE p.worker = o.worker AND p.epoch = o.epoch AND p.op = 'scrub');

-- step: another_had
-- Handoffs whose unfilled pages hold what another request's handoff, taken before they were opened, had put there.
CREATE TEMP TABLE another_had AS
WITH
put AS (
    SELECT worker, epoch, page, min(taken) AS taken
    FROM (
        SELECT worker, epoch, taken, unnest(pages[1:least]) AS page FROM named_handoffs AS h
        WHERE taken IS NOT NULL AND EXISTS (
            SELECT 1 FROM named_handoffs AS s WHERE s.worker = h.worker AND s.epoch = h.epoch AND s.most < len(s.pages)
        )
    )
    GROUP BY worker, epoch, page
),
unfilled AS (SELECT room, worker, epoch, seq, unnest(pages[most + 1:]) AS page FROM named_handoffs WHERE attempt = 1)
SELECT DISTINCT u.room FROM unfilled AS u JOIN put AS p USING (worker, epoch, page) WHERE p.taken < u.seq;

-- step: bound
-- A write that lands late can reach whoever holds those pages then: nothing in a log says who.
WITH
by_timer AS (
    SELECT worker, t FROM transfers WHERE op = 'expire' AND coalesce(dir, 'push') = 'push'
    UNION ALL SELECT worker, t FROM pages WHERE op = 'free' AND cause = 'timeout'
),
late AS (SELECT worker, min(t) AS since, max(t) AS last FROM by_timer GROUP BY worker),
judged AS (
    SELECT h.*,
           coalesce(h.prompt_tokens > h.limit_tokens, false) AS over_limit,
           coalesce(h.prefill_tokens = 1 AND h.prompt_tokens > 1, false) AS placeholder,
           coalesce(h.prefill_tokens > 1 AND h.prefill_tokens <> h.answer_tokens, false)
               OR coalesce(h.covered_tokens <> h.answer_tokens, false) AS lengths_differ,
           coalesce(h.may_be_short, false) AS short_transfer, coalesce(h.is_short, false) AS surely_short,
           coalesce(h.ended > l.since AND ($late_for_s IS NULL OR h.started < l.last + to_seconds($late_for_s)), false) AS after_timeout,
           a.alarms IS NOT NULL AS alarm,
           coalesce(h.role, '') <> 'unified' AND h.prefill_tokens IS NULL AND h.moved_bytes IS NULL AND h.done_pages IS NULL
               AND coalesce(h.handed_tokens, 1) > 0 AS unseen,
           (SELECT max(f.pages) FROM filled_before AS f WHERE f.worker = h.worker AND f.t < h.started - INTERVAL 1 SECOND) AS filled_pages
    FROM told_handoffs AS h
    LEFT JOIN late AS l ON l.worker = h.worker
    LEFT JOIN told_alarms AS a ON a.handoff = h.handoff
    WHERE h.answered AND ($from IS NULL OR h.started >= $from::TIMESTAMP) AND ($to IS NULL OR h.started < $to::TIMESTAMP)
      AND NOT list_contains(string_split($without, ','), h.rid)
),
placed AS (
    SELECT *, (placeholder OR surely_short) AND output_tokens > 0 AS is_unfilled FROM judged
    WHERE over_limit OR placeholder OR lengths_differ OR short_transfer OR after_timeout OR alarm OR unseen
)
SELECT rid,
       CASE WHEN is_unfilled AND (unfilled_pages + filled_pages > pool_pages OR room IN (SELECT room FROM another_had)) THEN 'least' WHEN is_unfilled THEN 'unfilled' ELSE 'possible' END AS bound,
       concat_ws(
           ' ', CASE WHEN over_limit THEN 'over-limit' END, CASE WHEN placeholder THEN 'placeholder' END,
           CASE WHEN lengths_differ THEN 'lengths-differ' END, CASE WHEN short_transfer THEN 'short-transfer' END,
           CASE WHEN after_timeout THEN 'after-timeout' END, CASE WHEN alarm THEN 'alarm' END,
           CASE WHEN unseen THEN 'unseen' END
       ) AS rules,
       room, worker, prompt_tokens, prefill_tokens, limit_tokens, moved_bytes, needed_bytes,
       CASE WHEN is_unfilled OR short_transfer THEN unfilled_pages END AS unfilled_pages, output_tokens, status, started
FROM placed
ORDER BY started, rid;
