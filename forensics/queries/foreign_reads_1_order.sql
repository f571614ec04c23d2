-- ---
-- title: Foreign reads, part 1, what a read may have found
-- part_of: foreign-reads
-- question: Which content events can each read, and each transfer at its source, have met?
-- since: "0.1"
-- ---
-- Order is that of docs/verdicts.md, section Order, mode E (seq and edges). `INF` is 4611686018427387904 (2^62).

-- step: places
-- One number per page of a worker epoch, so that later joins need no text.
CREATE TEMP TABLE places AS
SELECT CAST(row_number() OVER (ORDER BY worker, epoch, pool, page) AS BIGINT) AS place, worker, epoch, pool, page
FROM (SELECT DISTINCT worker, epoch, pool, page FROM cells) AS distinct_pages;

-- step: lives
-- The life of each (tag, page); `robbed`: somebody else ended it.
CREATE TEMP TABLE lives AS
SELECT p.place, t.tag, t.owner, t.reserve_seq, t.end_seq, coalesce(t.ended IN ('taken', 'reserved'), FALSE) AS robbed,
       t.granted, t.failed, t.held, t.unreturned, t.misdirected, t.collided
FROM tags AS t
JOIN places AS p ON p.worker = t.worker AND p.epoch = t.epoch AND p.pool = t.pool AND p.page = t.page;

-- step: loans
-- Shares and hits per page; `rank` orders by how grave they are: same, tenant (key unknown, complete, incomplete), meaning, both.
CREATE TEMP TABLE loans AS
SELECT p.place, s.tag, s.owner, s.seq,
       CAST(CASE WHEN s.identity = 'both' THEN 6
                 WHEN s.identity = 'meaning' THEN 5
                 WHEN s.identity = 'same' THEN 1
                 WHEN s.key_state = 'incomplete' THEN 4
                 WHEN s.key_state = 'complete' THEN 3
                 ELSE 2 END AS BIGINT) AS rank
FROM shares AS s
JOIN places AS p ON p.worker = s.worker AND p.epoch = s.epoch AND p.pool = s.pool AND p.page = s.page;

-- step: timeline
-- Every event with `hidden_at`: the smallest hi of an event that it is certainly before. A reader that starts at or
-- after that seq cannot meet it any more. So history costs nothing. `written`: by a request of the cell's worker.
CREATE TEMP TABLE timeline AS
WITH
-- The three ways to be before f, each as: f begins at or after the end of e on one line.
lines AS (
    SELECT event, cell, kind, hi, CAST(0 AS BIGINT) AS line, CAST(0 AS BIGINT) AS id, lo AS begins, hi AS ends
    FROM events
    UNION ALL
    SELECT event, cell, kind, hi, 1, mover, post_seq, done_seq FROM events WHERE mover IS NOT NULL AND (post_seq IS NOT NULL OR done_seq IS NOT NULL)
    UNION ALL
    SELECT event, cell, kind, hi, 2, stream, hi, hi + 1 FROM events WHERE stream IS NOT NULL
),
-- Ends ask, begins answer; at one place on the line the answers come first. A ghost hides nothing.
stops AS (
    SELECT cell, line, id, ends AS stop_at, 1 AS asks, event, CAST(NULL AS BIGINT) AS hides_at
    FROM lines WHERE ends IS NOT NULL
    UNION ALL
    SELECT cell, line, id, begins, 0, NULL, hi FROM lines WHERE kind <> 'ghost' AND begins IS NOT NULL
),
answered AS (
    SELECT event, asks, min(hides_at) OVER (
               PARTITION BY cell, line, id ORDER BY stop_at DESC, asks ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
           ) AS hidden_at
    FROM stops
),
hiding AS (
    SELECT event, coalesce(min(hidden_at), 4611686018427387904) AS hidden_at FROM answered WHERE asks = 1 GROUP BY event
)
SELECT e.*, c.place, h.hidden_at, e.kind IN ('write', 'growth', 'rewrite') AS written
FROM events AS e
JOIN hiding AS h ON h.event = e.event
JOIN (SELECT c.cell, p.place FROM cells AS c JOIN places AS p
      ON p.worker = c.worker AND p.epoch = c.epoch AND p.pool = c.pool AND p.page = c.page) AS c ON c.cell = e.cell;

-- step: windows
-- A transfer reads its source page: one reader per source cell and window, with a negative number.
CREATE TEMP TABLE windows AS
SELECT -CAST(row_number() OVER (ORDER BY src_cell, src_lo, src_hi) AS BIGINT) AS reader, src_cell, src_lo, src_hi
FROM (SELECT DISTINCT src_cell, src_lo, src_hi FROM events WHERE kind = 'landing' AND src_cell IS NOT NULL) AS w;

-- step: attempts
-- Requests whose own record is whole; of the others nothing can be said.
CREATE TEMP TABLE attempts AS
SELECT q.*, q.rows_complete AND q.owner >= 0 AS whole FROM requests AS q;

-- step: judged
-- The reads that can be judged.
CREATE TEMP TABLE judged AS
SELECT x.*, c.place, q.role
FROM reads AS x
JOIN attempts AS q ON q.rq = x.rq AND q.whole
JOIN (SELECT c.cell, p.place FROM cells AS c JOIN places AS p
      ON p.worker = c.worker AND p.epoch = c.epoch AND p.pool = c.pool AND p.page = c.page) AS c ON c.cell = x.cell;

-- step: near
-- Events that begin before a reader ends and are not over and hidden when it starts: a little more than the possible.
CREATE TEMP TABLE near AS
WITH
readers AS (
    SELECT read AS reader, cell, s0, s1_max FROM judged
    UNION ALL
    SELECT reader, src_cell, src_lo, src_hi FROM windows
),
known AS (SELECT event, cell, lo, greatest(hi, hidden_at) AS until FROM timeline),
-- Events with an end, numbered by their beginning; `reach` = the last end so far.
numbered AS (
    SELECT event, cell, lo, until, n, max(until) OVER (PARTITION BY cell ORDER BY n ROWS UNBOUNDED PRECEDING) AS reach
    FROM (
        SELECT k.*, CAST(row_number() OVER (PARTITION BY cell ORDER BY lo, event) AS BIGINT) AS n
        FROM known AS k WHERE until < 4611686018427387904
    ) AS k
),
-- Per reader, the last event up to which all are over at s0.
ended AS (
    SELECT reader, max(n) OVER (PARTITION BY cell ORDER BY stop_at, asks ROWS UNBOUNDED PRECEDING) AS n
    FROM (
        SELECT cell, reach AS stop_at, 0 AS asks, n, CAST(NULL AS BIGINT) AS reader FROM numbered
        UNION ALL
        SELECT cell, s0, 1, NULL, reader FROM readers
    ) AS stops
),
-- Per reader, the last event that begins before s1_max.
begun AS (
    SELECT reader, max(n) OVER (PARTITION BY cell ORDER BY stop_at, asks ROWS UNBOUNDED PRECEDING) AS n
    FROM (
        SELECT cell, lo AS stop_at, 1 AS asks, n, CAST(NULL AS BIGINT) AS reader FROM numbered
        UNION ALL
        SELECT cell, s1_max, 0, NULL, reader FROM readers
    ) AS stops
),
between_both AS (
    SELECT r.reader, r.cell, r.s0, unnest(generate_series(coalesce(o.n, 0) + 1, coalesce(b.n, 0))) AS n
    FROM readers AS r
    JOIN ended AS o ON o.reader = r.reader
    JOIN begun AS b ON b.reader = r.reader
)
SELECT b.reader, k.event
FROM between_both AS b
JOIN numbered AS k ON k.cell = b.cell AND k.n = b.n
WHERE k.until > b.s0
UNION ALL
SELECT r.reader, k.event
FROM readers AS r
JOIN known AS k ON k.cell = r.cell
WHERE k.until >= 4611686018427387904 AND k.lo < r.s1_max;

-- step: ordered
-- before(e, f) in both modes for every two events that stand near one read. Two ghosts need no order.
CREATE TEMP TABLE ordered AS
WITH
by_seq AS (
    SELECT a.reader AS read, e.event AS e, f.event AS f, e.t_hi, f.t_lo,
           e.hi <= f.lo
           OR coalesce(e.mover = f.mover AND e.done_seq <= f.post_seq, FALSE)
           OR coalesce(e.stream = f.stream AND e.hi < f.hi, FALSE) AS before_e
    FROM near AS a
    JOIN near AS b ON b.reader = a.reader AND b.event <> a.event
    JOIN timeline AS e ON e.event = a.event
    JOIN timeline AS f ON f.event = b.event
    WHERE a.reader >= 0 AND NOT (e.kind = 'ghost' AND f.kind = 'ghost')
)
SELECT a.read, a.e, a.f, a.before_e, a.before_e OR (NOT b.before_e AND coalesce(a.t_hi < a.t_lo, FALSE)) AS before_c
FROM by_seq AS a
JOIN by_seq AS b ON b.read = a.read AND b.e = a.f AND b.f = a.e;

-- step: possible
-- possible(e, x) in mode E; the read's own growth event hides too.
CREATE TEMP TABLE possible AS
SELECT n.reader, n.event
FROM near AS n
JOIN (SELECT read AS reader, s0, growth FROM judged
      UNION ALL
      SELECT reader, src_lo, NULL FROM windows) AS r ON r.reader = n.reader
JOIN timeline AS e ON e.event = n.event
LEFT JOIN ordered AS o ON o.read = n.reader AND o.e = n.event AND o.f = r.growth
WHERE e.hidden_at > r.s0 AND NOT coalesce(o.before_e, FALSE);

-- step: sources
-- The possible events at the source of each landing.
CREATE TEMP TABLE sources AS
SELECT e.event AS landing, p.event AS member
FROM timeline AS e
JOIN windows AS w ON w.src_cell = e.src_cell AND w.src_lo = e.src_lo AND w.src_hi = e.src_hi
JOIN possible AS p ON p.reader = w.reader
WHERE e.kind = 'landing';

-- step: strays
-- What began and ended within the life that a read page had under its reader's own tag, and did not belong there.
CREATE TEMP TABLE strays AS
WITH
-- Lives of a page numbered by their beginning; `reach` = the last end so far.
numbered AS (
    SELECT place, tag, owner, reserve_seq, end_seq, n,
           max(end_seq) OVER (PARTITION BY place ORDER BY n ROWS UNBOUNDED PRECEDING) AS reach
    FROM (
        SELECT l.*, CAST(row_number() OVER (PARTITION BY place ORDER BY reserve_seq, tag) AS BIGINT) AS n FROM lives AS l
    ) AS l
),
-- Landings, and what was written outside the life of its own tag.
suspects AS (
    SELECT e.event, e.place, e.cell, e.tag, e.lo, e.hi, e.kind = 'landing' AND e.collided AS collided
    FROM timeline AS e
    LEFT JOIN lives AS own ON own.place = e.place AND own.tag = e.tag
    WHERE e.kind = 'landing' OR (e.written AND (own.tag IS NULL OR e.lo < own.reserve_seq OR e.hi > own.end_seq))
),
ended AS (
    SELECT event, max(n) OVER (PARTITION BY place ORDER BY stop_at, asks ROWS UNBOUNDED PRECEDING) AS n
    FROM (
        SELECT place, reach AS stop_at, 1 AS asks, n, CAST(NULL AS BIGINT) AS event FROM numbered
        UNION ALL
        SELECT place, hi, 0, NULL, event FROM suspects
    ) AS stops
),
begun AS (
    SELECT event, max(n) OVER (PARTITION BY place ORDER BY stop_at, asks ROWS UNBOUNDED PRECEDING) AS n
    FROM (
        SELECT place, reserve_seq AS stop_at, 0 AS asks, n, CAST(NULL AS BIGINT) AS event FROM numbered
        UNION ALL
        SELECT place, lo, 1, NULL, event FROM suspects
    ) AS stops
),
around AS (
    SELECT e.*, unnest(generate_series(coalesce(o.n, 0) + 1, coalesce(b.n, 0))) AS n
    FROM suspects AS e
    JOIN ended AS o ON o.event = e.event
    JOIN begun AS b ON b.event = e.event
)
SELECT x.read, a.event, a.tag = l.tag AS is_own
FROM around AS a
JOIN numbered AS l ON l.place = a.place AND l.n = a.n
JOIN judged AS x ON x.cell = a.cell AND x.tag = l.tag AND x.owner = l.owner
WHERE a.lo >= l.reserve_seq AND a.hi <= l.end_seq AND (l.tag <> a.tag OR a.collided);
