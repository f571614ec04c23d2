-- ---
-- title: Foreign reads
-- question: Which responses read KV pages that were not theirs, whose pages were they, and how do we know?
-- parameters:
--   from: {type: instant, default: null, is: responses that started at or after}
--   to: {type: instant, default: null, is: responses that started before}
-- columns:
--   rid: the response
--   attempt: its attempt
--   tenant: its tenant (pseudonym)
--   worker: where it read
--   epoch: which life of the worker
--   req: its number there
--   pool: which pool
--   kind: foreign, unknown, corrupt, exposed or clean
--   proof: proved (seq and edges only) or inferred (a clock took part)
--   derived: it read what a contaminated request computed afterwards
--   delivered: a token left after the first such step - yes, no or unknown
--   mechanism: M1 to M14, or mechanism unknown
--   donor_rid: whose content it was; ? where several
--   donor_tenant: the donor's tenant
--   pages: distinct pages
--   page_list: the pages
--   first_step: the first step that may have read it
--   first_step_last: the last step that can have been the first
--   first_step_proof: proved or inferred
--   first_seq: the seq of the worker at which the content was there
--   reason: why it is not known, or what else is to be said
-- parts: [foreign_reads_1_order, foreign_reads_2_content, foreign_reads_3_judgement, foreign_reads_4_mechanism]
-- rows: finding
-- since: "0.1"
-- ---
-- Runs on the evidence tables of docs/verdicts.md, after its four parts. Each step is one statement, run once in order;
-- `[each level]` runs with $level from the highest number in `questions` down, `[until stable]` until it adds no row.

-- step: derived
-- Foreign reads at second hand; filled by the next step.
CREATE TEMP TABLE derived (read BIGINT, event BIGINT, donor BIGINT, mechanism VARCHAR, proof VARCHAR);

-- step: derived_rounds [until stable]
-- Reads of what a request wrote after its own foreign read, directly or through transfers.
INSERT INTO derived
WITH
guilt AS (
    SELECT f.donor, f.mechanism, f.proof, x.rq, x.owner, greatest(e.hi, x.s0) AS first_seq
    FROM (SELECT read, event, donor, mechanism, proof FROM accusations WHERE kind = 'foreign'
          UNION ALL
          SELECT read, event, donor, mechanism, proof FROM derived) AS f
    JOIN judged AS x ON x.read = f.read
    JOIN timeline AS e ON e.event = f.event
),
-- Per request its leading finding: the first, then the smallest mechanism, then the weaker proof.
first_guilt AS (
    SELECT rq, owner, first_seq, mechanism, proof
    FROM (SELECT g.*, row_number() OVER (PARTITION BY rq ORDER BY first_seq, mechanism, proof) AS place_in_line FROM guilt AS g) AS g
    WHERE place_in_line = 1
),
tainted AS (
    SELECT DISTINCT e.event, e.owner, d.donor, l.mechanism, l.proof
    FROM first_guilt AS l
    JOIN (SELECT DISTINCT rq, donor FROM guilt) AS d ON d.rq = l.rq
    JOIN requests AS q ON q.rq = l.rq
    JOIN places AS p ON p.worker = q.worker AND p.epoch = q.epoch
    JOIN timeline AS e ON e.place = p.place AND e.owner = l.owner AND e.written AND e.hi > l.first_seq
),
granted AS (
    SELECT a.read, a.event, o.mode, x.owner, e.kind
    FROM attended AS a
    JOIN outcomes AS o ON o.read = a.read AND o.mode = a.mode
    JOIN judged AS x ON x.read = a.read
    JOIN timeline AS e ON e.event = a.event
    WHERE a.certain AND a.class IN ('entitled', 'shared')
),
-- A landing is tainted for a reader if every root is, by somebody else.
tainted_landings AS (
    SELECT g.read, g.event
    FROM granted AS g
    JOIN roots AS r ON r.landing = g.event
    LEFT JOIN (SELECT DISTINCT event, owner FROM tainted) AS t ON t.event = r.root AND t.owner <> g.owner
    WHERE g.kind = 'landing'
    GROUP BY g.read, g.event
    HAVING count(*) = count(t.event)
),
found AS (
    SELECT g.read, g.event, g.mode, t.donor, t.mechanism, t.proof
    FROM granted AS g JOIN tainted AS t ON t.event = g.event AND t.owner <> g.owner
    UNION
    SELECT g.read, g.event, g.mode, t.donor, t.mechanism, t.proof
    FROM tainted_landings AS s
    JOIN granted AS g ON g.read = s.read AND g.event = s.event
    JOIN roots AS r ON r.landing = s.event
    JOIN tainted AS t ON t.event = r.root AND t.owner <> g.owner
)
SELECT read, event, donor, mechanism, CASE WHEN mode = 'C' THEN 'inferred' ELSE proof END
FROM found
EXCEPT
SELECT read, event, donor, mechanism, proof FROM derived;

-- step: exposures
-- Bytes of others that passed by in a life without being read, and sources released while they were read. Mode E only.
-- Where nobody knows whose bytes passed by, it is unknown.
CREATE TEMP TABLE exposures AS
SELECT x.read, CASE WHEN a.class = 'foreign' THEN 'exposed' ELSE 'unknown' END AS kind, a.donor, a.reason,
       CASE WHEN a.class = 'unknown' THEN CASE WHEN a.reason = 'page geometry differs' THEN 'M13' ELSE '' END
            WHEN s.is_own THEN 'M11'
            WHEN w.tag IS NULL THEN 'M13'
            WHEN w.reserve_seq > l.reserve_seq THEN CASE WHEN l.robbed THEN 'M8' ELSE 'M7' END
            WHEN w.robbed THEN 'M8'
            WHEN e.written THEN 'M7'
            WHEN w.held OR e.acked THEN 'M4'
            ELSE 'M3' END AS mechanism
FROM strays AS s
JOIN judged AS x ON x.read = s.read
JOIN timeline AS e ON e.event = s.event
JOIN answers AS a ON a.level = 2 AND a.event = s.event AND a.owner = x.owner AND a.tag = x.tag AND a.s0 = x.s0 AND a.class IN ('foreign', 'unknown')
JOIN lives AS l ON l.place = x.place AND l.tag = x.tag
LEFT JOIN lives AS w ON w.place = e.place AND w.tag = e.tag
UNION ALL
SELECT x.read, 'exposed', NULL, 'source released while it was read', 'M5'
FROM judged AS x
JOIN timeline AS e ON e.cell = x.cell AND e.kind = 'landing' AND e.tag = x.tag
JOIN (SELECT DISTINCT cell, place FROM timeline) AS at_source ON at_source.cell = e.src_cell
JOIN lives AS source ON source.place = at_source.place AND source.tag = e.src_tag
WHERE source.end_seq >= e.src_since AND source.end_seq <= e.src_until;

-- step: stepped
-- Where and when: R is the first run certain to have come after the event, Q the first that may have.
CREATE TEMP TABLE stepped AS
WITH
found AS (
    SELECT read, event, kind, donor, mechanism, proof, FALSE AS derived FROM accusations
    UNION ALL
    SELECT read, event, 'foreign', donor, mechanism, proof, TRUE FROM derived
),
pairs AS (
    SELECT DISTINCT f.read, f.event, x.rq, x.s0, x.last_t_end, x.end_t, e.lo, e.hi
    FROM found AS f
    JOIN judged AS x ON x.read = f.read
    JOIN timeline AS e ON e.event = f.event
),
runs AS (
    SELECT p.read, p.event, min(q.seq) AS q_seq,
           min(CASE WHEN q.since_seq >= p.hi OR p.hi <= p.s0 THEN q.seq END) AS r_seq
    FROM pairs AS p
    JOIN passes AS q ON q.rq = p.rq AND q.seq > p.s0 AND (q.seq > p.lo OR q.since_seq >= p.hi OR p.hi <= p.s0)
    GROUP BY p.read, p.event
),
sent AS (
    SELECT owner, max(output_tokens) AS most,
           min(CASE WHEN ended_seq IS NOT NULL AND output_tokens = 0 THEN 1 ELSE 0 END) AS all_none
    FROM requests WHERE owner >= 0 GROUP BY owner
),
timed AS (
    SELECT p.read, p.event, greatest(p.hi, p.s0) AS first_seq, q.step AS first_step,
           CASE WHEN q.seq IS NOT NULL THEN coalesce(r.step, q.step + q.n - 1) END AS first_step_last,
           CASE a.role
               WHEN 'decode' THEN
                   -- What left as a pass that took any time began is of the pass before it.
                   CASE WHEN a.last_token > coalesce(r.t, p.last_t_end) THEN 'yes'
                        WHEN a.last_token = coalesce(r.t, p.last_t_end) AND a.last_token = coalesce(r.end_t, p.end_t) THEN 'yes'
                        WHEN a.ended_seq IS NOT NULL AND a.last_token IS NULL THEN 'no'
                        WHEN a.ended_seq IS NOT NULL AND a.last_token < q.t THEN 'no'
                        WHEN a.ended_seq IS NOT NULL AND a.last_token = q.t AND q.t <> q.end_t THEN 'no'
                        WHEN a.ended_seq IS NULL AND a.end_certain THEN 'yes'
                        ELSE 'unknown' END
               WHEN 'prefill' THEN
                   CASE WHEN s.most >= 1 THEN 'yes' WHEN s.all_none = 1 THEN 'no' ELSE 'unknown' END
               ELSE 'unknown' END AS delivered
    FROM pairs AS p
    JOIN requests AS a ON a.rq = p.rq
    LEFT JOIN sent AS s ON s.owner = a.owner
    LEFT JOIN runs AS n ON n.read = p.read AND n.event = p.event
    LEFT JOIN passes AS q ON q.rq = p.rq AND q.seq = n.q_seq
    LEFT JOIN passes AS r ON r.rq = p.rq AND r.seq = n.r_seq
)
SELECT f.read, f.kind, f.donor, f.mechanism, f.proof, f.derived, t.first_seq, t.first_step, t.first_step_last,
       CASE WHEN f.kind = 'foreign' THEN t.delivered ELSE '' END AS delivered
FROM found AS f JOIN timed AS t ON t.read = f.read AND t.event = f.event;

-- step: findings
-- The gravest kind per page of a request, gathered into one row per kind, proof, mechanism, donor and reason.
WITH
per_read AS (
    SELECT read, kind, proof, derived, delivered, mechanism, donor, first_step, first_step_last, first_seq, '' AS reason
    FROM stepped
    UNION ALL
    SELECT read, kind, 'proved', FALSE, '', mechanism, donor, NULL, NULL, NULL, reason FROM exposures
    UNION ALL
    SELECT read, outcome, CASE WHEN mode = 'E' THEN 'proved' ELSE 'inferred' END, FALSE, '',
           CASE WHEN outcome = 'unknown' AND reason = 'page geometry differs' THEN 'M13' ELSE '' END, NULL, NULL, NULL, NULL,
           CASE WHEN outcome = 'unknown' THEN reason ELSE '' END
    FROM outcomes WHERE outcome IN ('unknown', 'clean')
    UNION ALL
    SELECT x.read, 'unknown', 'proved', FALSE, '', '', NULL, NULL, NULL, NULL, 'own rows lost'
    FROM reads AS x JOIN attempts AS q ON q.rq = x.rq AND NOT q.whole
),
ranked AS (
    SELECT f.*, x.rq, c.pool, c.page,
           CASE f.kind WHEN 'foreign' THEN 0 WHEN 'unknown' THEN 1 WHEN 'corrupt' THEN 2 WHEN 'exposed' THEN 3 ELSE 4 END AS rank
    FROM per_read AS f JOIN reads AS x ON x.read = f.read JOIN cells AS c ON c.cell = x.cell
),
gravest AS (SELECT rq, pool, page, min(rank) AS rank FROM ranked GROUP BY rq, pool, page),
per_page AS (
    SELECT f.rq, f.pool, f.page, f.kind, f.proof, f.derived, f.delivered, f.mechanism, f.donor, f.reason,
           min(f.first_step) AS first_step, min(f.first_step_last) AS first_step_last, min(f.first_seq) AS first_seq
    FROM ranked AS f
    JOIN gravest AS g ON g.rq = f.rq AND g.pool = f.pool AND g.page = f.page AND g.rank = f.rank
    GROUP BY f.rq, f.pool, f.page, f.kind, f.proof, f.derived, f.delivered, f.mechanism, f.donor, f.reason
),
-- A request reads each page through one page of the evidence: what these stand for does not overlap.
grouped AS (
    SELECT f.rq, f.pool, f.kind, f.proof, f.derived, f.delivered, f.mechanism, f.donor, f.reason,
           list_sort(flatten(array_agg(coalesce(m.numbers, [CAST(f.page AS INTEGER)])))) AS page_list,
           min(f.first_step) AS first_step, min(f.first_step_last) AS first_step_last, min(f.first_seq) AS first_seq
    FROM per_page AS f
    JOIN requests AS q ON q.rq = f.rq
    LEFT JOIN members AS m ON m.worker = q.worker AND m.epoch = q.epoch AND m.pool = f.pool AND m.page = f.page
    GROUP BY f.rq, f.pool, f.kind, f.proof, f.derived, f.delivered, f.mechanism, f.donor, f.reason
)
SELECT CASE WHEN q.owner >= 0 THEN q.rid ELSE '?' || q.worker || '/' || q.epoch || '/' || q.req END AS rid,
       CAST(q.attempt AS INTEGER) AS attempt, q.tenant, q.worker, CAST(q.epoch AS INTEGER) AS epoch, q.req, g.pool, g.kind,
       g.proof, g.derived, g.delivered, g.mechanism,
       CASE WHEN g.donor = -1 THEN '?' ELSE d.rid END AS donor_rid, d.tenant AS donor_tenant,
       len(g.page_list) AS pages, g.page_list,
       g.first_step, g.first_step_last, CASE WHEN g.first_step IS NOT NULL THEN g.proof END AS first_step_proof, g.first_seq,
       g.reason
FROM grouped AS g
JOIN requests AS q ON q.rq = g.rq
LEFT JOIN owners AS d ON d.owner = g.donor
ORDER BY 1 NULLS LAST, q.worker, q.epoch, q.req, g.pool, g.kind, g.mechanism, donor_rid NULLS LAST, g.reason,
         g.first_seq NULLS LAST, CAST(g.page_list AS VARCHAR), g.proof, g.derived, g.delivered;
