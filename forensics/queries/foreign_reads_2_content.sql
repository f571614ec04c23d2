-- ---
-- title: Foreign reads, part 2, whose content it is
-- part_of: foreign-reads
-- question: What does each reader find in each event - its own, entitled, stale, another's, never written, or unknown?
-- since: "0.1"
-- ---
-- class(e; o, tag) of docs/verdicts.md. Depth d of a landing is level 2d; level 2d + 1 asks the same event for its giver.

-- step: roots
-- What lies at the end of all transfer chains of a landing. `owner`: -1 lost, -2 not known, null = nobody's (unwritten).
CREATE TEMP TABLE roots AS
WITH RECURSIVE
below (landing, event, depth) AS (
    SELECT event, event, 1 FROM timeline WHERE kind = 'landing'
    UNION
    SELECT b.landing, s.member, b.depth + 1
    FROM below AS b JOIN sources AS s ON s.landing = b.event
    WHERE b.depth < 9
)
SELECT DISTINCT b.landing, b.event AS root,
       CASE WHEN e.kind IN ('write', 'growth') THEN e.owner
            WHEN e.kind IN ('unwritten', 'scrub') THEN NULL
            ELSE -2 END AS owner
FROM below AS b
JOIN timeline AS e ON e.event = b.event
LEFT JOIN (SELECT DISTINCT landing FROM sources) AS s ON s.landing = b.event
WHERE e.kind <> 'landing' OR b.depth >= 9 OR s.landing IS NULL;

-- step: questions
-- Every (event, reader) whose class is needed, from the reads down the transfer chains, at most 8 landings deep.
CREATE TEMP TABLE questions AS
WITH RECURSIVE
-- What must be known of a landing's members, and whether its giver may read it.
follow AS (
    SELECT s.landing, s.member AS event, e.src_tag AS tag, e.src_lo AS s0, CAST(NULL AS BIGINT) AS giver
    FROM sources AS s JOIN timeline AS e ON e.event = s.landing
    UNION ALL
    SELECT e.event, e.event, e.tag, NULL, l.owner
    FROM timeline AS e JOIN lives AS l ON l.place = e.place AND l.tag = e.tag
    WHERE e.kind = 'landing' AND l.owner >= 0
),
asked (level, event, owner, tag, s0) AS (
    SELECT CAST(2 AS BIGINT), p.event, x.owner, x.tag, x.s0
    FROM possible AS p JOIN judged AS x ON x.read = p.reader
    UNION
    SELECT CASE WHEN f.giver IS NULL THEN q.level - q.level % 2 + 2 ELSE q.level + 1 END,
           f.event, coalesce(f.giver, q.owner), f.tag, coalesce(f.s0, q.s0)
    FROM asked AS q JOIN follow AS f ON f.landing = q.event
    WHERE q.level < 18 AND (f.giver IS NULL OR (q.tag = f.tag AND f.giver <> q.owner AND q.level % 2 = 0))
)
SELECT q.level, q.event, q.owner, q.tag, q.s0, e.kind = 'landing' AS is_landing,
       l.owner AS giver, l.end_seq AS giver_end, max(s.rank) AS share
FROM asked AS q
JOIN timeline AS e ON e.event = q.event
LEFT JOIN lives AS l ON l.place = e.place AND l.tag = q.tag
LEFT JOIN loans AS s ON s.place = e.place AND s.tag = q.tag AND s.owner = q.owner AND s.seq <= q.s0
GROUP BY q.level, q.event, q.owner, q.tag, q.s0, e.kind, l.owner, l.end_seq;

-- step: answers
-- Events that are no landing speak for themselves. `by_share`: foreign through a share with identity both (M12).
CREATE TEMP TABLE answers AS
WITH
facts AS (
    SELECT q.*, e.kind, e.owner AS writer, e.tag AS written_tag, e.lo, e.hi, coalesce(e.reason, '') AS lost,
           q.share IS NOT NULL AND e.owner = q.giver AND e.tag = q.tag AND e.lo < q.giver_end AS lent
    FROM questions AS q JOIN timeline AS e ON e.event = q.event
    WHERE NOT q.is_landing
),
classed AS (
    SELECT f.*,
           CASE WHEN kind = 'ghost' THEN 'unknown'
                WHEN kind IN ('unwritten', 'scrub') THEN 'unwritten'
                WHEN writer = -1 THEN 'unknown'
                WHEN writer = owner AND written_tag = tag THEN 'entitled'
                WHEN writer = owner THEN 'stale'
                WHEN NOT coalesce(lent, FALSE) THEN 'foreign'
                WHEN hi > giver_end THEN 'unknown'
                WHEN share = 1 THEN 'entitled'
                WHEN share = 2 THEN 'shared'
                WHEN share = 3 THEN 'wrong'
                ELSE 'foreign' END AS class
    FROM facts AS f
)
SELECT level, event, owner, tag, s0, class,
       CASE WHEN class = 'foreign' THEN writer END AS donor,
       CASE WHEN class <> 'unknown' THEN ''
            WHEN kind = 'ghost' THEN lost
            WHEN writer = -1 THEN 'owner lost'
            ELSE 'undecided order' END AS reason,
       class = 'foreign' AND coalesce(lent, FALSE) AS by_share
FROM classed;

-- step: landing_answers [each level]
-- Landings, the deepest first: by their members, by the giver's right, else by their roots.
INSERT INTO answers
WITH
asked AS (
    SELECT q.*, e.tag AS landed_tag, e.lo, e.hi, e.src_cell, e.src_tag, e.src_lo
    FROM questions AS q JOIN timeline AS e ON e.event = q.event
    WHERE q.is_landing AND q.level = $level
),
members AS (
    SELECT q.event, q.owner, q.tag, q.s0, count(*) AS n,
           count(CASE WHEN a.class = 'entitled' THEN 1 END) AS entitled,
           count(CASE WHEN a.class = 'shared' THEN 1 END) AS shared,
           count(CASE WHEN a.class = 'wrong' THEN 1 END) AS wrong,
           count(CASE WHEN a.by_share THEN 1 END) AS by_share,
           min(CASE WHEN a.class = 'unknown' THEN a.reason END) AS reason
    FROM asked AS q
    JOIN sources AS s ON s.landing = q.event
    JOIN answers AS a ON a.level = q.level - q.level % 2 + 2 AND a.event = s.member AND a.owner = q.owner
                     AND a.tag = q.src_tag AND a.s0 = q.src_lo
    GROUP BY q.event, q.owner, q.tag, q.s0
),
owned AS (
    SELECT q.event, q.owner,
           count(CASE WHEN r.owner = -1 THEN 1 END) AS lost,
           count(CASE WHEN r.owner IS NULL THEN 1 END) AS nobody,
           count(CASE WHEN r.owner < -1 THEN 1 END) AS obscure,
           count(CASE WHEN r.owner = q.owner THEN 1 END) AS own,
           count(CASE WHEN r.owner >= 0 AND r.owner <> q.owner THEN 1 END) AS others,
           min(CASE WHEN r.owner <> q.owner THEN r.owner END) AS donor,
           max(CASE WHEN r.owner <> q.owner THEN r.owner END) AS last_donor
    FROM (SELECT DISTINCT event, owner FROM asked) AS q
    JOIN (SELECT DISTINCT landing, owner FROM roots) AS r ON r.landing = q.event
    GROUP BY q.event, q.owner
),
facts AS (
    SELECT q.*, m.n, m.entitled, m.shared, m.wrong, m.reason AS members_reason, coalesce(m.by_share = m.n, FALSE) AS all_by_share,
           g.class AS giver_class, g.reason AS giver_reason,
           CASE WHEN o.donor = o.last_donor THEN o.donor ELSE -1 END AS donor,
           CASE WHEN o.lost > 0 THEN 'lost'
                WHEN o.obscure > 0 THEN 'mixed'
                WHEN o.own = 0 AND o.others = 0 THEN 'unwritten'
                WHEN o.nobody = 0 AND o.others = 0 THEN 'stale'
                WHEN o.nobody = 0 AND o.own = 0 THEN 'foreign'
                ELSE 'mixed' END AS by_roots
    FROM asked AS q
    LEFT JOIN members AS m ON m.event = q.event AND m.owner = q.owner AND m.tag = q.tag AND m.s0 = q.s0
    LEFT JOIN owned AS o ON o.event = q.event AND o.owner = q.owner
    LEFT JOIN answers AS g ON g.level = q.level + 1 AND g.event = q.event AND g.owner = q.giver AND g.tag = q.tag AND g.s0 = q.s0
                          AND q.giver <> q.owner AND q.level % 2 = 0
),
-- The first rule of the specification that applies; the last resort are the roots.
ruled AS (
    SELECT f.*,
           CASE WHEN level >= 18 THEN 'unknown: transfer chain too long'
                WHEN src_cell IS NULL THEN 'unknown: source unknown'
                WHEN members_reason IS NOT NULL THEN 'unknown: ' || members_reason
                WHEN n IS NULL THEN 'unknown: undecided source'
                WHEN landed_tag <> tag THEN by_roots
                WHEN coalesce(giver, -1) = -1 THEN 'unknown: owner lost'
                WHEN giver = owner AND entitled = n THEN 'entitled'
                WHEN giver = owner AND shared = n THEN 'shared'
                WHEN giver = owner AND wrong = n THEN 'wrong'
                WHEN giver = owner AND entitled + shared + wrong > 0 THEN 'mixed'
                WHEN giver = owner AND all_by_share AND by_roots = 'foreign' THEN 'foreign by share'
                WHEN giver = owner THEN by_roots
                WHEN share IS NULL OR lo >= giver_end THEN by_roots
                WHEN giver_class = 'unknown' THEN 'unknown: ' || giver_reason
                WHEN giver_class <> 'entitled' THEN by_roots
                WHEN hi > giver_end THEN 'unknown: undecided order'
                WHEN share = 1 THEN 'entitled'
                WHEN share = 2 THEN 'shared'
                WHEN share = 3 THEN 'wrong'
                ELSE 'lent' END AS rule
    FROM facts AS f
)
SELECT level, event, owner, tag, s0,
       CASE WHEN rule LIKE 'unknown: %' OR rule IN ('lost', 'mixed') THEN 'unknown'
            WHEN rule IN ('foreign by share', 'lent') THEN 'foreign'
            ELSE rule END,
       CASE WHEN rule = 'lent' THEN giver WHEN rule IN ('foreign', 'foreign by share') THEN donor END,
       CASE WHEN rule LIKE 'unknown: %' THEN substr(rule, 10)
            WHEN rule = 'lost' THEN 'owner lost'
            WHEN rule = 'mixed' THEN 'undecided source'
            ELSE '' END,
       rule IN ('foreign by share', 'lent')
FROM ruled;
