-- A point lookup: one customer by his number.
\set id random(1, 1000)
SELECT id, name, balance FROM bench_customers WHERE id = :id;
