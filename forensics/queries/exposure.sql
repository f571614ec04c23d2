-- ---
-- title: Exposure
-- question: Which content went where, page by page, between which two requests, and by which way?
-- parameters:
--   from: {type: instant, default: null, is: responses that started at or after}
--   to: {type: instant, default: null, is: responses that started before}
--   rid: {type: text, default: null, is: only this reader}
--   donor: {type: text, default: null, is: only this donor}
-- columns:
--   rid: the reader
--   tenant: its tenant (pseudonym)
--   donor_rid: whose content; ? where several
--   donor_tenant: the donor's tenant (pseudonym)
--   kind: foreign (it was read) or exposed (it lay there, or was shared)
--   delivered: a token left after that - yes, no, unknown
--   mechanism: M1 to M14, P0, or mechanism unknown
--   proof: proved or inferred
--   worker: where
--   pool: which pool
--   pages: {is: distinct pages, unit: pages}
--   page_list: {is: the pages, shown: false}
--   tokens: {is: "at most so many tokens of content, by the pool's page size", unit: tokens}
--   started: when the reader began
-- judges: true
-- rows: finding
-- parts: []
-- since: "0.2"
-- ---
-- One row per pair of reader and donor, worker and pool. Of a page's tokens some may be the reader's own.

WITH sizes AS (SELECT worker, epoch, pool, max(page_tokens) AS page_tokens FROM workers WHERE op = 'config' GROUP BY ALL)
SELECT f.rid, f.tenant, f.donor_rid, f.donor_tenant, f.kind, f.delivered, f.mechanism, f.proof, f.worker, f.pool, f.pages,
       f.page_list, f.pages * s.page_tokens AS tokens, r.started
FROM findings AS f
JOIN responses AS r ON r.rid = f.rid
LEFT JOIN sizes AS s ON s.worker = f.worker AND s.epoch = f.epoch AND s.pool = f.pool
WHERE f.kind IN ('foreign', 'exposed')
  AND ($from IS NULL OR r.started >= $from::TIMESTAMP) AND ($to IS NULL OR r.started < $to::TIMESTAMP)
  AND ($rid IS NULL OR f.rid = $rid) AND ($donor IS NULL OR f.donor_rid = $donor)
ORDER BY r.started, f.rid, f.worker, f.pool, f.donor_rid, f.kind;
