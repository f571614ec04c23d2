-- ---
-- title: Proof of a verdict
-- question: Which chain of events shows that this response read what it is said to have read?
-- parameters:
--   rid: {type: text, is: the response}
-- columns:
--   finding: "number of the finding: its pages are shown by their last one"
--   mark: "`>>` at the row by which the content came to be read; `?` where one is not certain"
--   t: "when, by the clock of the worker that wrote the row"
--   worker: who wrote the row
--   epoch: {is: which life of the worker, shown: false}
--   seq: its place in that worker's order
--   op: what happened
--   rid: whose request it was
--   tenant: {is: its tenant (pseudonym), shown: false}
--   role: "`reader`, `donor`, or null: another"
--   pool: {is: which pool, shown: false}
--   page: {is: the page that is followed, shown: false}
--   says: what the row says
-- judges: true
-- rows: fact
-- parts: [part_asked_for, part_touched]
-- since: "0.2"
-- ---
-- One page of each finding that is not clean, from the donor's getting it (or the reader's, where no donor is known) to the
-- reader's letting it go: every row about that page on its worker, the copies into it, and what the reader's client got.

-- step: cases
-- The findings of this response, numbered, with one page of each.
CREATE TEMP TABLE cases AS
SELECT CAST(row_number() OVER (ORDER BY f.kind = 'foreign' DESC, f.first_step NULLS LAST, f.worker, f.pool, f.donor_rid) AS INTEGER) AS finding,
       f.worker, f.epoch, f.req, f.pool, f.kind, f.proof, f.mechanism, f.donor_rid, f.pages, f.page_list[len(f.page_list)] AS page, f.first_step,
       f.first_step_last, f.first_seq, f.reason
FROM findings AS f
WHERE f.rid = $rid AND f.kind <> 'clean' AND len(f.page_list) > 0;

-- step: spans
-- From when to when the followed page matters, by the order of its worker.
CREATE TEMP TABLE spans AS
WITH mine AS (
    SELECT c.finding, min(t.seq) FILTER (WHERE t.op IN ('reserve', 'append', 'share', 'bind')) AS taken, max(t.seq) AS let_go,
           min(t.seq) FILTER (WHERE t.op = 'bind') AS bind_seq
    FROM cases AS c
    JOIN touched AS t ON t.worker = c.worker AND t.epoch = c.epoch AND t.pool = c.pool AND t.page = c.page AND t.req = c.req
    GROUP BY c.finding
),
given AS (
    SELECT c.finding, max(t.seq) AS seq
    FROM cases AS c
    JOIN mine AS m ON m.finding = c.finding
    JOIN asked_for AS a ON a.worker = c.worker AND a.epoch = c.epoch AND a.rid = c.donor_rid
    JOIN touched AS t ON t.worker = c.worker AND t.epoch = c.epoch AND t.pool = c.pool AND t.page = c.page AND t.req = a.req
         AND t.op IN ('reserve', 'append', 'share') AND t.seq < m.let_go
    GROUP BY c.finding
)
SELECT m.finding, least(m.taken, coalesce(g.seq, m.taken)) AS lo, m.let_go AS hi, m.taken, m.bind_seq
FROM mine AS m LEFT JOIN given AS g USING (finding);

-- step: proof
-- The rows in the order in which they happened, as far as order is known.
WITH
owned AS (
    SELECT c.finding, t.t, t.worker, t.epoch, t.seq, t.op, t.req, c.pool, c.page,
           concat_ws(', ', t.cause, t.tokens || ' tokens',
                     CASE WHEN t.op NOT IN ('unbind', 'free', 'hold') THEN 'place ' || coalesce(t.pos + t.place, t.place) END) AS says,
           t.seq = s.bind_seq AND t.req = c.req AS is_bind, FALSE AS brings
    FROM cases AS c
    JOIN spans AS s USING (finding)
    JOIN touched AS t ON t.worker = c.worker AND t.epoch = c.epoch AND t.pool = c.pool AND t.page = c.page AND t.seq BETWEEN s.lo AND s.hi
    UNION ALL
    SELECT c.finding, k.t, k.worker, k.epoch, k.seq, 'cache ' || k.op, k.req, c.pool, c.page, k.tier, FALSE, FALSE
    FROM cases AS c
    JOIN spans AS s USING (finding)
    JOIN cache AS k ON k.worker = c.worker AND k.epoch = c.epoch AND k.pool = c.pool AND list_contains(k.pages, c.page) AND k.seq BETWEEN s.lo AND s.hi
),
times AS (
    SELECT c.finding, min(t.t) FILTER (WHERE t.seq = s.lo) AS since, max(t.t) FILTER (WHERE t.seq = s.hi) AS until
    FROM cases AS c JOIN spans AS s USING (finding)
    JOIN touched AS t ON t.worker = c.worker AND t.epoch = c.epoch AND t.pool = c.pool AND t.page = c.page
    GROUP BY c.finding
),
copied AS (
    SELECT c.finding, x.t, x.worker, x.epoch, x.seq, x.op, x.req, c.pool, c.page,
           concat_ws(', ', 'into page ' || c.page || ' of ' || c.worker,
                     'from its page ' || x.src_pages[list_position(x.dst_pages, c.page)], x.status) AS says, FALSE AS is_bind,
           x.op IN ('done', 'fail') AS brings
    FROM cases AS c
    JOIN times AS w USING (finding)
    JOIN transfers AS x ON coalesce(x.dst_pool, 'kv') = c.pool AND list_contains(x.dst_pages, c.page) AND x.op IN ('post', 'done', 'fail')
         AND (x.peer = c.worker OR x.worker = c.worker)
         AND x.t BETWEEN w.since - to_microseconds($skew_us) AND w.until + to_microseconds($skew_us)
),
sourced AS (  -- the page that was read for a copy, from its reserve (its seq is in the tag) until the copy was done
    SELECT c.finding, t.t, t.worker, t.epoch, t.seq, t.op, t.req, c.pool, c.page,
           concat_ws(', ', 'page ' || t.page || ' of ' || t.worker || ', the source', t.cause) AS says, FALSE AS is_bind, t.op = 'write' AS brings
    FROM cases AS c
    JOIN times AS w USING (finding)
    JOIN transfers AS x ON coalesce(x.dst_pool, 'kv') = c.pool AND list_contains(x.dst_pages, c.page) AND x.op = 'done'
         AND x.peer = c.worker AND x.worker <> c.worker
         AND x.t BETWEEN w.since - to_microseconds($skew_us) AND w.until + to_microseconds($skew_us)
    JOIN asked_for AS a ON a.worker = x.worker AND a.epoch = x.epoch AND a.req = x.req AND a.rid = $rid
    JOIN touched AS t ON t.worker = x.worker AND t.epoch = x.epoch AND t.pool = coalesce(x.src_pool, 'kv')
         AND t.page = x.src_pages[list_position(x.dst_pages, c.page)] AND t.seq BETWEEN x.src_tag % 274877906944 AND x.seq
),
passes AS (
    SELECT c.finding, p.t, p.worker, p.epoch, p.seq, p.op || ' pass' AS op, c.req, c.pool, c.page,
           'steps ' || p.step || ' to ' || (p.step + p.n - 1) || ': the first that read it is one of ' || c.first_step || ' to '
           || coalesce(c.first_step_last, c.first_step) AS says, FALSE, FALSE
    FROM cases AS c
    JOIN steps AS p ON p.worker = c.worker AND p.epoch = c.epoch AND c.first_step BETWEEN p.step AND p.step + p.n - 1
),
answered AS (
    SELECT c.finding, q.t, q.worker, q.epoch, q.seq, q.op, q.req, c.pool, c.page,
           concat_ws(', ', 'status ' || q.status, q.output_tokens || ' tokens', 'the last left at ' || q.last_token) AS says, FALSE, FALSE
    FROM cases AS c
    JOIN requests AS q ON q.worker = c.worker AND q.epoch = c.epoch AND q.req = c.req
         AND q.op IN ('commit', 'first_token', 'reject', 'finish', 'abort')
),
every AS (SELECT * FROM owned UNION ALL SELECT * FROM copied UNION ALL SELECT * FROM sourced UNION ALL SELECT * FROM passes UNION ALL SELECT * FROM answered),
named AS (
    SELECT e.*, a.rid, a.tenant, c.donor_rid, c.worker AS home, s.taken, c.proof,
           CASE WHEN a.rid = $rid THEN 'reader' WHEN a.rid = c.donor_rid THEN 'donor' END AS role
    FROM every AS e
    JOIN cases AS c USING (finding)
    JOIN spans AS s USING (finding)
    LEFT JOIN asked_for AS a ON a.worker = e.worker AND a.epoch = e.epoch AND a.req = e.req
),
judged AS (  -- bytes that came into the page once it was the reader's, from another; or, without such, its being read at all
    SELECT n.*, n.brings AND n.role IS DISTINCT FROM 'reader' AND EXISTS (
               SELECT 1 FROM named AS r WHERE r.finding = n.finding AND r.role = 'reader' AND r.worker = n.home AND r.op IN ('reserve', 'append')
               AND r.t <= n.t) AS offends
    FROM named AS n
)
SELECT finding,
       CASE WHEN offends OR (is_bind AND NOT bool_or(offends) OVER (PARTITION BY finding)) THEN CASE WHEN proof = 'proved' THEN '>>' ELSE '?' END ELSE '' END AS mark,
       t, worker, epoch, seq, op, rid, tenant, role, pool, page, says
FROM judged
ORDER BY finding, t, worker <> home, seq;
