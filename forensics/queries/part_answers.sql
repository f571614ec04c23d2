-- ---
-- title: Answers, one row per response
-- part_of: the library
-- question: What did the client get, and what did each role make of it?
-- since: "0.2"
-- ---

-- step: answers
-- One row per rid: what its client got is the gateway's to say, or else decode's.
CREATE TEMP TABLE answers AS
SELECT rid, max(tenant) AS tenant, max(purpose) AS purpose, max(prompt_tokens) AS prompt_tokens,
       min(received) AS started, max(ended) AS ended, max(cached_tokens) AS cached_tokens,
       max(output_tokens) AS output_tokens, max(last_token) AS last_token,
       coalesce(
           max(status) FILTER (WHERE role = 'gateway'),
           max(status) FILTER (WHERE role = 'decode'),
           max(status)
       ) AS status,
       min(received) FILTER (WHERE role = 'gateway') AS at_gateway,
       min(received) FILTER (WHERE role = 'prefill') AS at_prefill,
       min(first_token) FILTER (WHERE role = 'prefill') AS prefilled,
       min(received) FILTER (WHERE role = 'decode') AS at_decode,
       min(first_token) FILTER (WHERE role = 'decode') AS first_token
FROM asked_for
GROUP BY rid;
