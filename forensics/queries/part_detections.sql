-- ---
-- title: Detections, one row per hit of a detector
-- part_of: detections, incidents
-- question: Which detector says what about whom?
-- since: "0.2"
-- ---

-- step: full_pools
-- Times in which holds took more than a share of a pool, or outlived their deadline; one row per worker, pool and stretch of gauges.
CREATE TEMP TABLE full_pools AS
WITH
sizes AS (SELECT worker, epoch, pool, max(pool_pages) AS pool_pages FROM workers WHERE op = 'config' GROUP BY ALL),
high AS (
    SELECT g.worker, g.epoch, g.pool, g.t, g.held, g.quarantined, s.pool_pages, g.held > $held_share * s.pool_pages OR g.quarantined > 0 AS over,
           row_number() OVER w - row_number() OVER (PARTITION BY g.worker, g.epoch, g.pool, g.held > $held_share * s.pool_pages OR g.quarantined > 0 ORDER BY g.seq) AS stretch
    FROM gauges AS g JOIN sizes AS s USING (worker, epoch, pool)
    WINDOW w AS (PARTITION BY g.worker, g.epoch, g.pool ORDER BY g.seq)
)
SELECT worker, pool, min(t) AS t, max(held) AS held, max(quarantined) AS quarantined, max(pool_pages) AS pool_pages
FROM high WHERE over GROUP BY worker, epoch, pool, stretch;

-- step: detections
-- What engines checked as they ran (`check`), and what the record shows afterwards (`record`).
CREATE TEMP TABLE all_detections AS
WITH
checked AS (
    SELECT k.detector, 'check' AS source, k.worker, k.pool, a.rid, NULL AS other_rid, k.t,
           concat_ws(', ', 'expected ' || k.expected, 'found ' || k.found, 'page ' || k.page, 'step ' || k.step, k.action) AS what
    FROM checks AS k
    LEFT JOIN asked_for AS a ON a.worker = k.worker AND a.epoch = k.epoch AND a.req = k.req
    WHERE k.op = 'mismatch' OR (k.op = 'probe' AND k.found IS DISTINCT FROM k.expected)
),
timed AS (
    SELECT worker, rid, received, greatest(prompt_tokens - coalesce(cached_tokens, 0), 1) * $floor_us_per_token AS floor_us,
           date_diff('microsecond', received, first_token) AS us
    FROM asked_for WHERE role = 'prefill' AND first_token IS NOT NULL AND received IS NOT NULL
),
sums AS (
    SELECT p.worker, coalesce(p.dst_pool, 'kv') AS pool, p.req, p.epoch, d.t, p.xfer
    FROM transfers AS p JOIN transfers AS d ON d.xfer = p.xfer AND d.chunk = p.chunk AND d.digest_at = 'arrival'
    WHERE p.op = 'post' AND p.digests IS NOT NULL AND d.digests IS NOT NULL AND p.digests <> d.digests
)
SELECT * FROM checked
UNION ALL
SELECT 'D1', 'record', worker, 'kv', rid, NULL, started, 'prompt of ' || prompt_tokens || ' tokens, limit ' || limit_tokens || ', answered ' || coalesce(status, 'nothing') FROM found_gate_violations
UNION ALL
SELECT 'D1', 'record', worker, NULL, rid, NULL, started, 'noted ' || there || ', answered ' || status FROM found_status_consistency
UNION ALL
SELECT CASE WHEN misplaced > 0 THEN 'G' ELSE 'D2' END, 'record', decode, pool, rid, NULL, granted,
       what || ': ' || done || ' of ' || reserved || ' pages arrived' FROM found_transfer_mismatch
UNION ALL
SELECT 'D3', 'record', s.worker, s.pool, a.rid, NULL, s.t, 'checksums differ between post and arrival'
FROM sums AS s LEFT JOIN asked_for AS a ON a.worker = s.worker AND a.epoch = s.epoch AND a.req = s.req
UNION ALL
SELECT 'D7', 'record', worker, 'kv', rid, NULL, received, 'first token after ' || us || ' us, the least is ' || CAST(round(floor_us) AS BIGINT) FROM timed WHERE us < floor_us
UNION ALL
SELECT 'D8', 'record', worker, pool, rid, other_rid, since, what || ', ' || pages || ' pages' FROM found_double_owners
UNION ALL
SELECT 'D8', 'record', worker, pool, rid, NULL, ended, pages || ' pages did not come back' FROM found_leaks
UNION ALL
SELECT 'D9', 'record', worker, pool, NULL, NULL, t, held || ' pages held, ' || quarantined || ' quarantined, of ' || pool_pages FROM full_pools
UNION ALL
SELECT 'K', 'record', worker, 'kv', rid, giver_rid, t, pages || ' cached pages of another ' || differs_in FROM found_cross_tenant_hits
UNION ALL
SELECT 'U', 'record', worker, NULL, rid, other_rid, since, what || ' ' || name || ' used twice' FROM found_identity_collisions
UNION ALL
SELECT 'G', 'record', decode, pool, NULL, NULL, first, field || ' ' || at_prefill || ' at ' || prefill || ', ' || at_decode || ' here' FROM found_geometry
UNION ALL
SELECT 'O', 'record', decode, pool, rid, next_rid, freed, 'written ' || late_ms || ' ms after its pages were given back' FROM found_late_writes
UNION ALL
SELECT 'O', 'record', worker, pool, rid, NULL, posted, pages || ' pages handed over before they were computed' FROM found_early_reads
UNION ALL
SELECT 'O', 'record', worker, pool, rid, by_rid, posted, pages || ' source pages given back while they were read, ' || rewritten || ' rewritten' FROM found_source_reuse
UNION ALL
SELECT 'O', 'record', worker, pool, rid, by_rid, freed, pages || ' pages given back while they were read' FROM found_use_after_free;
