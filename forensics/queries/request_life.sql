-- ---
-- title: Life of a request
-- question: What did every worker do for this request, and in which order?
-- parameters:
--   rid: {type: text, is: the request}
-- columns:
--   t: when, by the worker's clock
--   worker: who wrote the row
--   epoch: {is: which life of the worker, shown: false}
--   seq: its place in the worker's order
--   from_table: the ledger's table
--   op: what happened
--   pool: which pool
--   n: {is: how many, unit: pages}
--   pages: which pages (of a copy, at its destination)
--   peer: the other worker
--   says: what else the row says
-- rows: fact
-- parts: [part_asked_for]
-- since: "0.2"
-- ---
-- By time; within a worker that is its own order, between workers as far as their clocks agree (see the skew in the envelope).

WITH its AS (SELECT worker, epoch, req FROM asked_for WHERE rid = $rid),
handed AS (SELECT DISTINCT x.xfer FROM transfers AS x JOIN its USING (worker, epoch, req) WHERE x.xfer IS NOT NULL),
life AS (
    SELECT q.t, q.worker, q.epoch, q.seq, 'requests' AS from_table, q.op, NULL AS pool, NULL AS n, NULL AS pages, NULL AS peer,
           concat_ws(', ', 'prompt ' || prompt_tokens || ' tokens', 'covered ' || covered_tokens, 'cached ' || cached_tokens,
                     'answer ' || output_tokens, 'status ' || status, reason) AS says
    FROM requests AS q JOIN its USING (worker, epoch, req)
    UNION ALL
    SELECT p.t, p.worker, p.epoch, p.seq, 'pages', p.op, p.pool, p.n, p.pages, NULL,
           concat_ws(', ', cause, p.tokens || ' tokens', 'until ' || deadline)
    FROM pages AS p JOIN its USING (worker, epoch, req)
    UNION ALL
    SELECT x.t, x.worker, x.epoch, x.seq, 'transfers', x.op, coalesce(x.dst_pool, x.src_pool), x.n, x.dst_pages, x.peer,
           concat_ws(', ', x.status, 'asked ' || x.asked, x.bytes || ' bytes', x.outstanding || ' outstanding')
    FROM transfers AS x
    WHERE x.xfer IN (SELECT xfer FROM handed)
    UNION ALL
    SELECT c.t, c.worker, c.epoch, c.seq, 'cache', c.op, c.pool, c.n, c.pages, NULL,
           concat_ws(', ', c.tier, 'asked ' || c.asked, 'returned ' || c.returned)
    FROM cache AS c JOIN its USING (worker, epoch, req)
    UNION ALL
    SELECT k.t, k.worker, k.epoch, k.seq, 'checks', k.op, k.pool, k.n, CASE WHEN k.page IS NOT NULL THEN [k.page] END, NULL,
           concat_ws(', ', k.detector, 'expected ' || k.expected, 'found ' || k.found, k.action)
    FROM checks AS k JOIN its USING (worker, epoch, req)
)
SELECT * FROM life ORDER BY t, worker, epoch, seq;
