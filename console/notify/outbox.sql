-- The outbox: one row per message. What is to be sent, what was, and with that what each receiver was told last.

-- step: create
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY,
    receiver TEXT NOT NULL,
    incident TEXT NOT NULL,
    number INTEGER NOT NULL, -- of the messages about this incident to this receiver, from 1
    told TEXT NOT NULL, -- what the receiver will have been told
    severity INTEGER NOT NULL,
    notice TEXT NOT NULL,
    queued_us INTEGER NOT NULL,
    due_us INTEGER NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    ended TEXT, -- sent, refused or given up; NULL = waits
    ended_us INTEGER,
    problem TEXT,
    UNIQUE (receiver, incident, number)
);

-- step: told
SELECT incident, number, told, severity, notice
FROM messages AS m
WHERE receiver = :receiver
  AND number = (SELECT max(number) FROM messages WHERE receiver = m.receiver AND incident = m.incident);

-- step: queue
-- Two consoles over one ledger come to the same message; the second is not kept.
INSERT INTO messages (receiver, incident, number, told, severity, notice, queued_us, due_us)
VALUES (:receiver, :incident, :number, :told, :severity, :notice, :now, :now)
ON CONFLICT DO NOTHING;

-- step: due
-- The oldest first, and about one incident only the first that waits: an end never overtakes its beginning.
SELECT id, incident, number, notice, attempts, queued_us
FROM messages AS m
WHERE receiver = :receiver AND ended IS NULL AND due_us <= :now
  AND NOT EXISTS (
      SELECT 1 FROM messages AS b
      WHERE b.receiver = m.receiver AND b.incident = m.incident AND b.number < m.number AND b.ended IS NULL
  )
ORDER BY id LIMIT 50;

-- step: claim
-- Whoever moves the due time first sends; where it ends without an answer, the message is due again by itself.
UPDATE messages SET attempts = attempts + 1, due_us = :again
WHERE id = :id AND ended IS NULL AND due_us <= :now;

-- step: fail
UPDATE messages SET problem = :problem, due_us = :again WHERE id = :id AND ended IS NULL;

-- step: end
UPDATE messages SET ended = :ended, ended_us = :now, problem = :problem WHERE id = :id;

-- step: repeat
UPDATE messages AS m SET ended = NULL, attempts = 0, due_us = :now
WHERE receiver = :receiver AND ended = 'sent' AND told = :told AND ended_us <= :before
  AND incident IN (SELECT value FROM json_each(:incidents))
  AND number = (SELECT max(number) FROM messages WHERE receiver = m.receiver AND incident = m.incident);

-- step: counts
SELECT receiver, coalesce(ended, 'waiting') AS state, count(*) AS messages, min(queued_us) AS oldest_us
FROM messages GROUP BY 1, 2;
