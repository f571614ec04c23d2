-- ---
-- title: Foreign reads, part 2, whose content it is
-- part_of: foreign-reads
-- question: What does each reader find in each event - its own, entitled, stale, another's, never written, or unknown?
-- since: "0.1"
-- ---
-- class(e; o, tag) of docs/verdicts.md. Depth d of a landing is level 2d; level 2d + 1 asks the same event for its giver.

-- step: contests
-- Events beside which another writer filled the same page under the same tag: `wrong` where that one's word should stand,
-- `open` where nobody can say. Those where it should not are left out.
CREATE TEMP TABLE contests AS
WITH
filled AS (SELECT * FROM timeline WHERE (written OR kind = 'landing') AND mover IS NOT NULL),
several AS (SELECT cell, tag FROM filled GROUP BY cell, tag HAVING min(mover) <> max(mover)),
pairs AS (
    SELECT e.event,
           e.hi <= f.lo
           OR coalesce(e.mover = f.mover AND e.done_seq <= f.post_seq, FALSE)
           OR coalesce(e.stream = f.stream AND e.hi < f.hi, FALSE) AS is_before,
           f.hi <= e.lo
           OR coalesce(e.mover = f.mover AND f.done_seq <= e.post_seq, FALSE)
           OR coalesce(e.stream = f.stream AND f.hi < e.hi, FALSE) AS is_after,
           -- An authority that is not known is 0 or 1.
           coalesce(e.authority, 0) > coalesce(f.authority, 1) AS is_above,
           coalesce(f.authority, 0) > coalesce(e.authority, 1) AS is_below
    FROM several AS s
    JOIN filled AS e ON e.cell = s.cell AND e.tag = s.tag
    JOIN filled AS f ON f.cell = s.cell AND f.tag = s.tag AND f.mover <> e.mover
    WHERE NOT coalesce(e.digest = f.digest, FALSE)
)
SELECT event, CASE WHEN bool_or(is_after AND is_below) THEN 'wrong' ELSE 'open' END AS contest
FROM pairs
WHERE (is_after AND is_below) OR NOT (is_before OR (is_after AND is_above))
GROUP BY event;

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
       CASE WHEN e.written THEN e.owner
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
-- What must be known of a landing's members (in a view, each under its own tag), and whether its giver may read it.
follow AS (
    SELECT s.landing, s.member AS event, coalesce(e.src_tag, m.tag) AS tag, e.src_lo AS s0, CAST(NULL AS BIGINT) AS giver
    FROM sources AS s
    JOIN timeline AS e ON e.event = s.landing
    JOIN timeline AS m ON m.event = s.member
    UNION ALL
    SELECT e.event, e.event, e.tag, NULL, l.owner
    FROM timeline AS e JOIN lives AS l ON l.place = e.place AND l.tag = e.tag
    WHERE e.kind = 'landing' AND l.owner >= 0
),
asked (level, event, owner, tag, s0) AS (
    SELECT CAST(2 AS BIGINT), p.event, x.owner, x.tag, x.s0
    FROM (SELECT reader, event FROM possible UNION ALL SELECT read, event FROM strays) AS p
    JOIN judged AS x ON x.read = p.reader
    UNION
    SELECT CASE WHEN f.giver IS NULL THEN q.level - q.level % 2 + 2 ELSE q.level + 1 END,
           f.event, coalesce(f.giver, q.owner), f.tag, coalesce(f.s0, q.s0)
    FROM asked AS q JOIN follow AS f ON f.landing = q.event
    WHERE q.level < 18 AND (f.giver IS NULL OR (q.tag = f.tag AND f.giver <> q.owner AND q.level % 2 = 0))
)
SELECT q.level, q.event, q.owner, q.tag, q.s0, e.kind = 'landing' AS is_landing,
       l.owner AS giver, l.end_seq AS giver_end, max(s.rank) AS share, bool_or(coalesce(n.is_taken, FALSE)) AS taken_by_nobody,
       CASE max(s.rank) WHEN 2 THEN 'mechanism unknown' WHEN 3 THEN 'P0' WHEN 4 THEN 'M12' END AS key_cause
FROM asked AS q
JOIN timeline AS e ON e.event = q.event
LEFT JOIN lives AS l ON l.place = e.place AND l.tag = q.tag
LEFT JOIN loans AS s ON s.place = e.place AND s.tag = q.tag AND s.owner = q.owner AND s.seq <= q.s0
-- A taker whose owner is lost may have been anybody.
LEFT JOIN (SELECT place, tag, min(seq) AS seq, TRUE AS is_taken FROM loans WHERE owner = -1 GROUP BY place, tag) AS n
    ON n.place = e.place AND n.tag = q.tag AND n.seq <= q.s0
GROUP BY q.level, q.event, q.owner, q.tag, q.s0, e.kind, l.owner, l.end_seq;

-- step: answers
-- Events that are no landing speak for themselves. `cause`: the mechanism that a class implies, '' where it implies none.
CREATE TEMP TABLE answers AS
WITH
facts AS (
    SELECT q.*, e.kind, e.owner AS writer, e.tag AS written_tag, e.lo, e.hi, coalesce(e.reason, '') AS lost, c.contest,
           (q.share IS NOT NULL OR q.taken_by_nobody) AND e.owner = q.giver AND e.tag = q.tag AND e.lo < q.giver_end AS lent
    FROM questions AS q
    JOIN timeline AS e ON e.event = q.event
    LEFT JOIN contests AS c ON c.event = q.event
    WHERE NOT q.is_landing
),
granted AS (
    SELECT f.*,
           CASE WHEN kind = 'ghost' THEN 'unknown'
                WHEN kind IN ('unwritten', 'scrub') THEN 'unwritten'
                WHEN writer = -1 THEN 'unknown'
                WHEN writer = owner AND written_tag = tag THEN 'entitled'
                WHEN writer = owner THEN 'stale'
                WHEN NOT coalesce(lent, FALSE) THEN 'foreign'
                WHEN share IS NULL THEN 'unknown'
                WHEN hi > giver_end THEN 'unknown'
                WHEN share = 1 THEN 'entitled'
                WHEN share <= 4 THEN 'shared'
                WHEN share = 5 THEN 'wrong'
                ELSE 'foreign' END AS grant
    FROM facts AS f
),
classed AS (
    SELECT g.*,
           CASE WHEN grant IN ('entitled', 'shared') AND contest = 'wrong' THEN 'wrong'
                WHEN grant IN ('entitled', 'shared') AND contest = 'open' THEN 'unknown'
                ELSE grant END AS class
    FROM granted AS g
)
SELECT level, event, owner, tag, s0, class,
       CASE WHEN class = 'foreign' THEN writer END AS donor,
       CASE WHEN class <> 'unknown' THEN ''
            WHEN kind = 'ghost' THEN lost
            WHEN writer = -1 THEN 'owner lost'
            WHEN grant <> 'unknown' THEN 'two writers'
            WHEN share IS NULL THEN 'owner lost'
            ELSE 'undecided order' END AS reason,
       CASE WHEN class = 'shared' THEN key_cause
            WHEN class = 'wrong' AND grant <> 'wrong' THEN 'M11'
            WHEN class = 'wrong' OR (class = 'foreign' AND coalesce(lent, FALSE)) THEN 'M12'
            ELSE '' END AS cause
FROM classed;

-- step: landing_answers [each level]
-- Landings, the deepest first: by their members, by the giver's right, else by their roots.
INSERT INTO answers
WITH
asked AS (
    SELECT q.*, e.tag AS landed_tag, e.lo, e.hi, e.src_cell, e.src_tag, e.src_lo, coalesce(e.flaw, '') AS flaw, c.contest
    FROM questions AS q
    JOIN timeline AS e ON e.event = q.event
    LEFT JOIN contests AS c ON c.event = q.event
    WHERE q.is_landing AND q.level = $level
),
members AS (
    SELECT q.event, q.owner, q.tag, q.s0, count(*) AS n,
           count(CASE WHEN a.class = 'entitled' THEN 1 END) AS entitled,
           count(CASE WHEN a.class = 'shared' THEN 1 END) AS shared,
           count(CASE WHEN a.class = 'wrong' THEN 1 END) AS wrong,
           count(CASE WHEN a.class = 'foreign' AND a.cause = 'M12' THEN 1 END) AS stolen,
           min(CASE WHEN a.class IN ('entitled', 'shared', 'wrong') THEN a.cause END) AS cause,
           min(CASE WHEN a.class = 'unknown' THEN a.reason END) AS reason
    FROM asked AS q
    JOIN sources AS s ON s.landing = q.event
    JOIN timeline AS m ON m.event = s.member
    JOIN answers AS a ON a.level = q.level - q.level % 2 + 2 AND a.event = s.member AND a.owner = q.owner
                     AND a.tag = coalesce(q.src_tag, m.tag) AND a.s0 = q.src_lo
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
    SELECT q.*, m.n, m.entitled, m.shared, m.wrong, coalesce(m.stolen = m.n, FALSE) AS all_stolen, m.cause AS members_cause,
           m.reason AS members_reason, g.class AS giver_class, g.reason AS giver_reason, g.cause AS giver_cause,
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
-- What the giver may read, as the reader's who took it; `stolen`: under a key that says it is somebody else's.
lent AS (
    SELECT f.*,
           CASE WHEN share = 1 THEN giver_class
                WHEN share = 6 OR (share = 5 AND giver_class = 'shared') OR (share < 5 AND giver_class = 'wrong' AND giver_cause = 'M12')
                    THEN 'stolen'
                WHEN share = 5 OR giver_class = 'wrong' THEN 'wrong'
                ELSE 'shared' END AS lent_class,
           CASE WHEN share = 1 OR giver_class = 'wrong' THEN giver_cause
                WHEN share = 5 THEN 'M12'
                WHEN giver_class = 'shared' THEN least(giver_cause, key_cause)
                ELSE key_cause END AS lent_cause
    FROM facts AS f
),
-- The first rule of the specification that applies; the last resort are the roots.
ruled AS (
    SELECT f.*,
           CASE WHEN level >= 18 THEN 'unknown: transfer chain too long'
                WHEN src_cell IS NULL THEN 'unknown: source unknown'
                WHEN flaw = 'size' THEN 'unknown: page geometry differs'
                WHEN members_reason IS NOT NULL THEN 'unknown: ' || members_reason
                WHEN n IS NULL THEN 'unknown: undecided source'
                WHEN landed_tag <> tag THEN by_roots
                WHEN coalesce(giver, -1) = -1 THEN 'unknown: owner lost'
                WHEN giver = owner AND entitled = n THEN 'entitled'
                WHEN giver = owner AND shared = n THEN 'shared'
                WHEN giver = owner AND wrong = n THEN 'wrong'
                WHEN giver = owner AND entitled + shared + wrong > 0 THEN 'mixed'
                WHEN giver = owner AND all_stolen AND by_roots = 'foreign' THEN 'stolen from all'
                WHEN giver = owner THEN by_roots
                WHEN (share IS NULL AND NOT taken_by_nobody) OR lo >= giver_end THEN by_roots
                WHEN giver_class = 'unknown' THEN 'unknown: ' || giver_reason
                WHEN giver_class NOT IN ('entitled', 'shared', 'wrong') THEN by_roots
                WHEN share IS NULL THEN 'unknown: owner lost'
                WHEN hi > giver_end THEN 'unknown: undecided order'
                ELSE lent_class END AS first_rule,
           CASE WHEN giver = owner THEN coalesce(members_cause, '') ELSE coalesce(lent_cause, '') END AS granted_cause
    FROM lent AS f
),
-- What was granted may still be in another layout, or not what another writer meant to stand there.
checked AS (
    SELECT r.*,
           CASE WHEN first_rule NOT IN ('entitled', 'shared') THEN first_rule
                WHEN flaw = 'layout' THEN 'in another layout'
                WHEN contest = 'wrong' THEN 'of the wrong writer'
                WHEN contest = 'open' THEN 'unknown: two writers'
                ELSE first_rule END AS rule
    FROM ruled AS r
)
SELECT level, event, owner, tag, s0,
       CASE WHEN rule LIKE 'unknown: %' OR rule IN ('lost', 'mixed') THEN 'unknown'
            WHEN rule IN ('stolen', 'stolen from all') THEN 'foreign'
            WHEN rule IN ('in another layout', 'of the wrong writer') THEN 'wrong'
            ELSE rule END,
       CASE WHEN rule = 'stolen' THEN giver WHEN rule IN ('foreign', 'stolen from all') THEN donor END,
       CASE WHEN rule LIKE 'unknown: %' THEN substr(rule, 10)
            WHEN rule = 'lost' THEN 'owner lost'
            WHEN rule = 'mixed' THEN 'undecided source'
            ELSE '' END,
       CASE WHEN rule IN ('stolen', 'stolen from all') THEN 'M12'
            WHEN rule = 'in another layout' THEN 'M13'
            WHEN rule = 'of the wrong writer' THEN 'M11'
            WHEN rule IN ('entitled', 'shared', 'wrong') THEN granted_cause
            ELSE '' END
FROM checked;
