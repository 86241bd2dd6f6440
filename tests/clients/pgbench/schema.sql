-- The small schema of the scripts beside: a customer, his orders, their items. Of 1 000 customers, 10 000 orders, 40 000 items.
DROP TABLE IF EXISTS bench_items;
DROP TABLE IF EXISTS bench_orders;
DROP TABLE IF EXISTS bench_customers;
CREATE TABLE bench_customers (id int, name text, segment text, balance numeric(12,2));
CREATE TABLE bench_orders (id int, customer int, day date, priority text);
CREATE TABLE bench_items (ordered int, line int, quantity numeric(12,2), price numeric(12,2), discount numeric(12,2), flag text, shipped date);
INSERT INTO bench_customers SELECT x, 'customer ' || x, CASE x % 3 WHEN 0 THEN 'BUILDING' WHEN 1 THEN 'MACHINERY' ELSE 'FURNITURE' END, CAST(x % 1000 AS numeric(12,2)) FROM generate_series(1, 1000) AS g(x);
INSERT INTO bench_orders SELECT x, x * 7 % 1000 + 1, DATE '1995-01-01' + CAST(x % 700 AS int), CASE x % 2 WHEN 0 THEN '1-URGENT' ELSE '5-LOW' END FROM generate_series(1, 10000) AS g(x);
INSERT INTO bench_items SELECT x % 10000 + 1, x / 10000 + 1, CAST(x % 50 + 1 AS numeric(12,2)), CAST(x % 9000 + 100 AS numeric(12,2)), CAST(0.05 AS numeric(12,2)), CASE x % 3 WHEN 0 THEN 'A' WHEN 1 THEN 'N' ELSE 'R' END, DATE '1995-02-01' + CAST(x % 700 AS int) FROM generate_series(0, 39999) AS g(x);
