-- ---
-- title: Contaminated responses
-- question: Which answers were made from another request's KV, and how many of them count?
-- parameters:
--   from: {type: instant, default: null, is: responses that started at or after}
--   to: {type: instant, default: null, is: responses that started before}
--   exclude: {type: text, default: "engineering,research", is: "purposes that do not count, separated by commas"}
-- columns:
--   rid: the response
--   tenant: whose answer it is (pseudonym)
--   purpose: what the request was for
--   counted: "`yes`; or why not: `purpose X`, `before the window`, `after the window`"
--   edge: {is: "its start is so near a border of the window that clocks cannot tell the side"}
--   proof: proved (seq and edges only) or inferred (a clock took part)
--   derived: {is: it read what a contaminated request had computed, shown: false}
--   mechanism: M1 to M14, or mechanism unknown
--   donors: {is: "whose content it read, a lower bound", shown: false}
--   donor_count: {is: how many donors are known, unit: requests}
--   pages: {is: distinct foreign pages that it read, unit: pages}
--   started: when it was received
--   finished: {is: when it ended, shown: false}
--   status: what its client got
-- judges: true
-- rows: finding
-- parts: []
-- since: "0.2"
-- ---
-- A response counts where a token left after the foreign read (that is what makes it contaminated), it began inside the
-- window, and its purpose is no excluded one. Those that do not count stay in the list, with the reason.

WITH found AS (
    SELECT r.*,
           ($from IS NOT NULL AND abs(date_diff('microsecond', $from::TIMESTAMP, started)) <= $skew_us)
           OR ($to IS NOT NULL AND abs(date_diff('microsecond', $to::TIMESTAMP, started)) <= $skew_us) AS edge
    FROM responses AS r
    WHERE verdict = 'contaminated'
)
SELECT rid, tenant, purpose,
       CASE
           WHEN list_contains(string_split($exclude, ','), purpose) THEN 'purpose ' || purpose
           WHEN $from IS NOT NULL AND started < $from::TIMESTAMP THEN 'before the window'
           WHEN $to IS NOT NULL AND started >= $to::TIMESTAMP THEN 'after the window'
           ELSE 'yes'
       END AS counted,
       coalesce(edge, FALSE) AS edge, proof, derived, mechanism, donors, len(donors) AS donor_count, pages, started, finished,
       status
FROM found
ORDER BY counted = 'yes' DESC, counted, started, rid;
