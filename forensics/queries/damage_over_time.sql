-- ---
-- title: Damage over time
-- question: When did it begin, is it growing, and has it ended?
-- parameters:
--   bucket: {type: duration, default: 1h, is: the length of a row's time}
--   from: {type: instant, default: null, is: responses that started at or after}
--   to: {type: instant, default: null, is: responses that started before}
-- columns:
--   t: the beginning of the row's time
--   responses: {is: responses that began, unit: responses}
--   contaminated: {is: of them, unit: responses}
--   unknown: {is: of them, unit: responses}
--   corrupt: {is: of them, unit: responses}
--   exposed: {is: of them, unit: responses}
--   clean: {is: of them, unit: responses}
--   contaminated_so_far: {is: "contaminated from the first row on", unit: responses}
--   share: {is: "contaminated of all, per thousand", unit: "0/00"}
-- judges: true
-- rows: fact
-- parts: []
-- since: "0.2"
-- ---
-- Times without any response have no row.

WITH counted AS (
    SELECT time_bucket($bucket, started, TIMESTAMP '2000-01-01') AS t, count(*) AS responses,
           count(*) FILTER (WHERE verdict = 'contaminated') AS contaminated, count(*) FILTER (WHERE verdict = 'unknown') AS unknown,
           count(*) FILTER (WHERE verdict = 'corrupt') AS corrupt, count(*) FILTER (WHERE verdict = 'exposed') AS exposed,
           count(*) FILTER (WHERE verdict = 'clean') AS clean
    FROM responses
    WHERE started IS NOT NULL AND ($from IS NULL OR started >= $from::TIMESTAMP) AND ($to IS NULL OR started < $to::TIMESTAMP)
    GROUP BY ALL
)
SELECT *, CAST(sum(contaminated) OVER (ORDER BY t) AS BIGINT) AS contaminated_so_far, round(1000.0 * contaminated / responses, 3) AS share
FROM counted
ORDER BY t;
