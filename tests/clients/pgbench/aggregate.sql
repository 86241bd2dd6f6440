-- A small aggregate: the orders of a month by priority.
\set month random(1, 12)
SELECT priority, count(*) FROM bench_orders WHERE extract(month FROM day) = :month GROUP BY priority ORDER BY priority;
