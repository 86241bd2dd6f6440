-- A write in a transaction of several statements, and what it has written read again.
\set id random(1, 1000)
BEGIN;
INSERT INTO bench_written VALUES (:client_id, :id);
SELECT count(*) AS n FROM bench_written WHERE client = :client_id \gset
COMMIT;
