-- ---
-- title: Foreign reads, part 3, what a read did find
-- part_of: foreign-reads
-- question: For each read, which mode decides it, to what outcome, and which events did it certainly find?
-- since: "0.1"
-- ---
-- Section "Findings of one read" of docs/verdicts.md. Mode C is only looked at where one glance in mode E is not enough.

-- step: met
-- Each read with its possible events in mode E and their classes; what was granted may lie in another place of the table.
-- Of a later place than any that the reader was lent, it is whoever's it is.
CREATE TEMP TABLE met AS
WITH
rooted AS (
    SELECT landing AS event, owner FROM roots
    UNION
    SELECT event, owner FROM timeline WHERE written
),
astray AS (
    SELECT x.read, e.event,
           count(CASE WHEN r.owner = -1 THEN 1 END) AS lost,
           count(CASE WHEN r.owner IS NULL OR r.owner < -1 THEN 1 END) AS nobody,
           count(CASE WHEN r.owner = x.owner THEN 1 END) AS own,
           count(CASE WHEN r.owner >= 0 AND r.owner <> x.owner THEN 1 END) AS others,
           min(CASE WHEN r.owner <> x.owner THEN r.owner END) AS donor,
           max(CASE WHEN r.owner <> x.owner THEN r.owner END) AS last_donor
    FROM possible AS p
    JOIN judged AS x ON x.read = p.reader
    JOIN timeline AS e ON e.event = p.event AND e.tag = x.tag AND e.pos > x.pos_last
    JOIN lives AS l ON l.place = x.place AND l.tag = x.tag AND l.owner <> x.owner
    JOIN rooted AS r ON r.event = e.event
    GROUP BY x.read, e.event
),
known AS (
    SELECT x.read, p.event, a.class, a.cause, a.donor, a.reason,
           CASE WHEN NOT (a.class IN ('entitled', 'shared') AND e.tag = x.tag AND coalesce(e.pos <> x.pos, FALSE)) THEN 'in place'
                WHEN o.lost > 0 THEN 'lost'
                WHEN o.others > 0 AND o.own = 0 AND o.nobody = 0 THEN 'foreign'
                WHEN o.others > 0 OR (o.own > 0 AND o.nobody > 0) THEN 'mixed'
                ELSE 'wrong' END AS placed,
           CASE WHEN o.donor = o.last_donor THEN o.donor ELSE -1 END AS astray_donor
    FROM possible AS p
    JOIN judged AS x ON x.read = p.reader
    JOIN timeline AS e ON e.event = p.event
    JOIN answers AS a ON a.level = 2 AND a.event = p.event AND a.owner = x.owner AND a.tag = x.tag AND a.s0 = x.s0
    LEFT JOIN astray AS o ON o.read = x.read AND o.event = p.event
)
SELECT x.read, e.event,
       CASE k.placed WHEN 'in place' THEN k.donor WHEN 'foreign' THEN k.astray_donor END AS donor,
       CASE k.placed WHEN 'lost' THEN 'owner lost' WHEN 'mixed' THEN 'undecided source' ELSE k.reason END AS reason,
       CASE k.placed WHEN 'in place' THEN k.class WHEN 'foreign' THEN 'foreign' WHEN 'wrong' THEN 'wrong' ELSE 'unknown' END AS class,
       CASE k.placed WHEN 'in place' THEN k.cause WHEN 'foreign' THEN 'M13' WHEN 'wrong' THEN 'M13' ELSE '' END AS cause,
       e.hi <= x.s0 OR coalesce(x.growth = e.event, FALSE) AS pre_e,
       e.hi <= x.s0 OR coalesce(x.growth = e.event, FALSE) OR e.hi <= x.last_since AS seen_e,
       count(*) OVER (PARTITION BY x.read) AS n
FROM known AS k
JOIN judged AS x ON x.read = k.read
JOIN timeline AS e ON e.event = k.event;

-- step: contested
-- Reads that are not settled by one seen event of a known class.
CREATE TEMP TABLE contested AS
SELECT x.* FROM judged AS x
LEFT JOIN (SELECT read FROM met WHERE n = 1 AND seen_e AND class <> 'unknown') AS plain ON plain.read = x.read
WHERE plain.read IS NULL;

-- step: modes
-- Both modes of the contested reads: possible events, and whether each was seen before the last pass started.
CREATE TEMP TABLE modes AS
WITH
facts AS (
    SELECT m.*, x.cell, x.s0, x.s1, x.s1_max, x.first_t, x.last_t_end, x.end_t, x.growth, e.lo, e.hi, e.t_lo, e.t_hi,
           e.mover, e.post_seq, e.stream,
           m.pre_e OR (e.lo < x.s0 AND coalesce(e.t_hi < x.first_t, FALSE)) AS pre_c
    FROM met AS m
    JOIN contested AS x ON x.read = m.read
    JOIN timeline AS e ON e.event = m.event
),
-- Events over at s0 that the clock puts after e: the smallest hi, as `hidden_at` is for mode E.
hidden_by_clock AS (
    SELECT e.event, min(f.hi) AS hidden_at
    FROM (SELECT DISTINCT event, cell, lo, hi, t_hi, mover, post_seq, stream FROM facts) AS e
    JOIN timeline AS f ON f.cell = e.cell AND f.kind <> 'ghost' AND f.hi > e.lo AND e.t_hi < f.t_lo
    WHERE NOT (coalesce(f.mover = e.mover AND f.done_seq <= e.post_seq, FALSE)
               OR coalesce(f.stream = e.stream AND f.hi < e.hi, FALSE))
    GROUP BY e.event
),
-- Events that only the clock puts before the first pass, and the read's own growth.
hiders AS (
    SELECT x.read, f.event AS f
    FROM contested AS x
    JOIN near AS n ON n.reader = x.read
    JOIN timeline AS f ON f.event = n.event
    WHERE f.kind <> 'ghost' AND f.lo < x.s0 AND f.hi > x.s0 AND f.t_hi < x.first_t
    UNION
    SELECT read, growth FROM contested WHERE growth IS NOT NULL
),
hidden AS (
    SELECT DISTINCT h.read, o.e AS event
    FROM hiders AS h JOIN ordered AS o ON o.read = h.read AND o.f = h.f AND o.before_c
)
SELECT 'E' AS mode, f.read, f.event, f.class, f.donor, f.reason, f.cause, f.seen_e AS seen FROM facts AS f
UNION ALL
SELECT 'C', f.read, f.event, f.class, f.donor, f.reason, f.cause,
       f.seen_e OR f.pre_c OR (f.lo < f.s1_max AND coalesce(f.t_hi < f.last_t_end, FALSE))
FROM facts AS f
LEFT JOIN hidden_by_clock AS c ON c.event = f.event AND c.hidden_at <= f.s0
LEFT JOIN hidden AS h ON h.read = f.read AND h.event = f.event
WHERE c.event IS NULL AND h.event IS NULL
  AND (f.seen_e OR f.s1 <> f.s1_max OR NOT coalesce(f.t_lo > f.end_t, FALSE));

-- step: attended
-- Each read, mode and possible event, and whether the read certainly found it.
CREATE TEMP TABLE attended AS
WITH
-- R: the first run certain to have come after e.
first_run AS (
    SELECT m.read, m.event, min(p.seq) AS seq, min_by(p.end_t, p.seq) AS end_t, min_by(p.since_seq, p.seq) AS since_seq
    FROM (SELECT DISTINCT read, event FROM modes) AS m
    JOIN contested AS x ON x.read = m.read
    JOIN timeline AS e ON e.event = m.event
    JOIN passes AS p ON p.rq = x.rq AND p.seq > x.s0 AND (p.since_seq >= e.hi OR e.hi <= x.s0)
    GROUP BY m.read, m.event
),
-- Another possible event that may have overwritten e before any pass.
rivals AS (
    SELECT DISTINCT a.mode, a.read, a.event
    FROM ordered AS o
    JOIN modes AS a ON a.read = o.read AND a.event = o.f
    JOIN modes AS b ON b.read = o.read AND b.event = o.e AND b.mode = a.mode
    JOIN timeline AS f ON f.event = o.e
    LEFT JOIN first_run AS r ON r.read = a.read AND r.event = a.event
    WHERE NOT (CASE WHEN a.mode = 'E' THEN o.before_e ELSE o.before_c END)
      -- A pass reads a state before it rewrites it.
      AND NOT coalesce(r.seq <= CASE WHEN f.kind = 'rewrite' THEN f.hi ELSE f.lo END, FALSE)
      AND NOT coalesce(a.mode = 'C' AND r.end_t < f.t_lo AND r.since_seq < f.hi, FALSE)
)
SELECT 'E' AS mode, m.read, m.event, m.class, m.donor, m.reason, m.cause, TRUE AS certain
FROM met AS m
LEFT JOIN contested AS x ON x.read = m.read
WHERE x.read IS NULL
UNION ALL
SELECT m.mode, m.read, m.event, m.class, m.donor, m.reason, m.cause, m.seen AND r.event IS NULL
FROM modes AS m
LEFT JOIN rivals AS r ON r.mode = m.mode AND r.read = m.read AND r.event = m.event;

-- step: outcomes
-- One row per read: the mode that decides it, or mode C undecided.
CREATE TEMP TABLE outcomes AS
WITH
counted AS (
    SELECT mode, read,
           count(CASE WHEN class = 'foreign' AND certain THEN 1 END) AS foreign_certain,
           count(CASE WHEN class IN ('foreign', 'unknown') THEN 1 END) AS doubtful,
           count(CASE WHEN class IN ('stale', 'unwritten', 'wrong') THEN 1 END) AS bad,
           count(CASE WHEN class IN ('stale', 'unwritten', 'wrong') AND certain THEN 1 END) AS bad_certain,
           count(CASE WHEN class = 'shared' THEN 1 END) AS shared,
           count(CASE WHEN class = 'shared' AND certain THEN 1 END) AS shared_certain,
           min(CASE WHEN class = 'unknown' THEN reason END) AS reason
    FROM attended GROUP BY mode, read
),
decided AS (
    SELECT mode, read, reason,
           CASE WHEN foreign_certain > 0 THEN 'foreign'
                WHEN doubtful > 0 THEN 'undecided'
                WHEN bad > 0 THEN CASE WHEN bad_certain > 0 THEN 'corrupt' ELSE 'undecided' END
                WHEN shared > 0 THEN CASE WHEN shared_certain > 0 THEN 'exposed' ELSE 'undecided' END
                ELSE 'clean' END AS outcome
    FROM counted
)
SELECT x.read,
       CASE WHEN e.outcome <> 'undecided' THEN 'E' ELSE 'C' END AS mode,
       CASE WHEN e.outcome <> 'undecided' THEN e.outcome
            WHEN c.outcome <> 'undecided' THEN c.outcome
            ELSE 'unknown' END AS outcome,
       coalesce(c.reason, 'undecided order') AS reason
FROM judged AS x
LEFT JOIN decided AS e ON e.mode = 'E' AND e.read = x.read
LEFT JOIN decided AS c ON c.mode = 'C' AND c.read = x.read;
