-- ---
-- title: Foreign reads, part 4, how it came there
-- part_of: foreign-reads
-- question: By which mechanism did what a read certainly found come before it?
-- since: "0.1"
-- ---
-- Section "Mechanism" of docs/verdicts.md. A mechanism explains a finding and decides none.

-- step: accused
-- Events that a read certainly found and that stand against it.
CREATE TEMP TABLE accused AS
SELECT a.read, a.event, o.mode, o.outcome AS kind, a.cause, CASE WHEN a.class = 'foreign' THEN a.donor END AS donor,
       x.rq, x.tag, x.place, x.cell, x.s0, x.req_lo, x.req_hi, e.kind AS event_kind, e.written, e.tag AS event_tag,
       e.owner AS event_owner, e.lo, e.hi, e.acked, coalesce(e.pos <> x.pos, FALSE) AS is_misplaced
FROM outcomes AS o
JOIN attended AS a ON a.read = o.read AND a.mode = o.mode AND a.certain
JOIN judged AS x ON x.read = a.read
JOIN timeline AS e ON e.event = a.event
WHERE (o.outcome = 'foreign' AND a.class = 'foreign')
   OR (o.outcome = 'corrupt' AND a.class IN ('stale', 'unwritten', 'wrong'))
   OR (o.outcome = 'exposed' AND a.class = 'shared');

-- step: odd
-- Where a chain of transfers under their own tags first brought what the tag's owner may not read: (landing, member).
CREATE TEMP TABLE odd AS
WITH RECURSIVE
begun AS (
    SELECT DISTINCT a.event, l.owner
    FROM accused AS a JOIN lives AS l ON l.place = a.place AND l.tag = a.tag
    WHERE a.event_kind = 'landing' AND a.event_tag = a.tag AND a.cause = ''
),
chain (event, landing, member, owner, level, is_followed) AS (
    SELECT event, CAST(NULL AS BIGINT), event, owner, CAST(2 AS BIGINT), TRUE FROM begun
    UNION
    SELECT c.event, c.member, s.member, l.owner, c.level + 2,
           m.kind = 'landing' AND m.tag = coalesce(e.src_tag, m.tag) AND l.owner IS NOT NULL
    FROM chain AS c
    JOIN sources AS s ON s.landing = c.member
    JOIN timeline AS e ON e.event = c.member
    JOIN timeline AS m ON m.event = s.member
    JOIN answers AS a ON a.level = c.level + 2 AND a.event = s.member AND a.owner = c.owner
                     AND a.tag = coalesce(e.src_tag, m.tag) AND a.s0 = e.src_lo
    LEFT JOIN lives AS l ON l.place = m.place AND l.tag = m.tag
    WHERE c.is_followed AND c.level < 18 AND a.class NOT IN ('entitled', 'shared', 'wrong')
)
SELECT DISTINCT c.event, c.landing, c.member
FROM chain AS c
LEFT JOIN chain AS d ON c.is_followed AND d.event = c.event AND d.landing = c.member
WHERE c.landing IS NOT NULL AND d.event IS NULL;

-- step: at_source
-- Per accused landing what its odd pairs say: the source reused, filled later, collided, overrun, left over.
CREATE TEMP TABLE at_source AS
WITH
pairs AS (
    SELECT o.event, o.landing, o.member, e.src_cell, e.src_tag, e.src_lo, e.collided, m.lo, w.end_seq, w.robbed,
           CASE WHEN NOT coalesce((m.written OR m.kind = 'landing') AND m.tag <> e.src_tag AND m.lo >= w.reserve_seq, FALSE) THEN NULL
                WHEN v.tag IS NULL THEN 'M13'
                WHEN v.reserve_seq > w.reserve_seq THEN CASE WHEN w.robbed THEN 'M8' ELSE 'M7' END
                WHEN v.robbed THEN 'M8'
                WHEN m.written THEN 'M7'
                WHEN v.held OR m.acked THEN 'M4'
                ELSE 'M3' END AS astray,
           m.kind IN ('unwritten', 'scrub') OR coalesce(m.hi <= w.reserve_seq, FALSE) AS is_left,
           coalesce(w.failed OR w.unreturned, FALSE) AS is_failed
    FROM odd AS o
    JOIN timeline AS e ON e.event = o.landing
    JOIN timeline AS m ON m.event = o.member
    LEFT JOIN (SELECT DISTINCT cell, place FROM timeline) AS c ON c.cell = e.src_cell
    LEFT JOIN lives AS w ON w.place = c.place AND w.tag = e.src_tag
    LEFT JOIN lives AS v ON v.place = c.place AND v.tag = m.tag
),
filled_later AS (
    SELECT DISTINCT p.event
    FROM pairs AS p
    JOIN timeline AS g ON g.cell = p.src_cell AND g.tag = p.src_tag AND (g.written OR g.kind = 'landing')
                      AND g.hi > p.src_lo AND g.event <> p.member
)
SELECT p.event,
       CASE WHEN bool_or(coalesce(p.lo >= p.end_seq AND p.robbed, FALSE)) THEN 'M8'
            WHEN bool_or(coalesce(p.lo >= p.end_seq, FALSE)) THEN 'M5'
            WHEN bool_or(f.event IS NOT NULL) THEN 'M6'
            WHEN bool_or(p.collided) THEN 'M11'
            WHEN min(p.astray) IS NOT NULL THEN min(p.astray)
            WHEN bool_or(p.is_left AND p.is_failed) THEN 'M2'
            WHEN bool_or(p.is_left) THEN 'M1'
            ELSE 'mechanism unknown' END AS mechanism
FROM pairs AS p LEFT JOIN filled_later AS f ON f.event = p.event
GROUP BY p.event;

-- step: filled
-- Landings and writes (no growth) on cells that accused requests read, for what was or was not there at a bind.
CREATE TEMP TABLE filled AS
SELECT x.read, x.rq, x.cell, x.tag, x.s0, x.req_lo, x.req_hi, c.pool, min(g.hi) AS first_hi, max(g.hi) AS last_hi
FROM judged AS x
JOIN (SELECT DISTINCT rq FROM accused) AS a ON a.rq = x.rq
JOIN cells AS c ON c.cell = x.cell
LEFT JOIN timeline AS g ON g.cell = x.cell AND g.tag = x.tag AND g.kind IN ('write', 'landing')
GROUP BY x.read, x.rq, x.cell, x.tag, x.s0, x.req_lo, x.req_hi, c.pool;

-- step: accusations
-- The mechanism of each, by the first rule of the specification that applies.
CREATE TEMP TABLE accusations AS
WITH
elsewhere AS (
    SELECT DISTINCT x.read
    FROM accused AS a
    JOIN filled AS x ON x.read = a.read
    -- What a slot says is of the whole handoff, whatever tokens the other page holds.
    JOIN filled AS y ON y.rq = x.rq AND y.pool <> x.pool AND (x.pool = 'slot' OR (y.req_lo < x.req_hi AND x.req_lo < y.req_hi))
    WHERE y.pool <> 'slot' AND y.first_hi <= y.s0
),
facts AS (
    SELECT a.*, l.tag IS NOT NULL AS is_known, l.owner AS tag_owner, coalesce(l.reserve_seq, -1) AS reserve_seq, l.robbed, l.failed,
           l.misdirected, l.collided, l.unreturned, l.granted, w.tag IS NOT NULL AS event_tag_known,
           w.reserve_seq AS event_reserve_seq, w.robbed AS event_robbed, w.held AS event_held,
           s.mechanism AS source_mechanism, coalesce(x.last_hi > a.s0, FALSE) AS is_late, y.read IS NOT NULL AS is_elsewhere
    FROM accused AS a
    LEFT JOIN lives AS l ON l.place = a.place AND l.tag = a.tag
    LEFT JOIN lives AS w ON w.place = a.place AND w.tag = a.event_tag
    LEFT JOIN at_source AS s ON s.event = a.event
    LEFT JOIN filled AS x ON x.read = a.read
    LEFT JOIN elsewhere AS y ON y.read = a.read
),
placed AS (
    SELECT f.*,
           CASE WHEN cause <> '' THEN 'by its class'
                WHEN event_kind = 'landing' AND event_tag = tag THEN 'at the source'
                WHEN written AND event_tag = tag THEN 'under the tag'
                WHEN (written OR event_kind = 'landing') AND lo >= reserve_seq THEN 'astray'
                WHEN event_kind = 'landing' AND mode = 'C' AND hi > reserve_seq THEN 'astray'
                WHEN is_known THEN 'left over'
                ELSE '' END AS rule
    FROM facts AS f
)
SELECT read, event, kind, donor, CASE WHEN mode = 'E' THEN 'proved' ELSE 'inferred' END AS proof,
       CASE rule
           WHEN 'by its class' THEN cause
           WHEN 'at the source' THEN
               -- What a source held all along is never read where it belongs: the place is at fault.
               CASE WHEN is_misplaced AND coalesce(source_mechanism, 'mechanism unknown') IN ('M1', 'mechanism unknown') THEN 'M13'
                    ELSE coalesce(source_mechanism, 'mechanism unknown') END
           WHEN 'under the tag' THEN CASE WHEN coalesce(tag_owner = event_owner, FALSE) THEN 'mechanism unknown' ELSE 'M11' END
           WHEN 'astray' THEN
               CASE WHEN NOT event_tag_known THEN 'M13'
                    WHEN NOT is_known THEN 'mechanism unknown'
                    WHEN event_reserve_seq > reserve_seq THEN CASE WHEN robbed THEN 'M8' ELSE 'M7' END
                    WHEN event_robbed THEN 'M8'
                    WHEN written THEN 'M7'
                    WHEN event_held OR acked THEN 'M4'
                    ELSE 'M3' END
           WHEN 'left over' THEN
               CASE WHEN is_late THEN 'M6'
                    WHEN failed THEN 'M2'
                    WHEN misdirected THEN 'M13'
                    WHEN collided THEN 'M11'
                    WHEN is_elsewhere THEN 'M14'
                    WHEN unreturned THEN 'M2'
                    WHEN granted THEN 'M1'
                    ELSE 'mechanism unknown' END
           ELSE 'mechanism unknown' END AS mechanism
FROM placed;
