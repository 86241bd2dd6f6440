-- Queries in the manner of TPC-H's 1, 3, 6 and 4, one of them in each transaction.
\set which random(1, 4)
\set day random(0, 600)
\if :which = 1
SELECT flag, sum(quantity) AS quantity, sum(price) AS base, sum(price * (1 - discount)) AS charged, avg(quantity) AS mean, count(*) AS n FROM bench_items WHERE shipped <= DATE '1995-02-01' + CAST(:day AS int) GROUP BY flag ORDER BY flag;
\elif :which = 2
SELECT o.id, sum(i.price * (1 - i.discount)) AS revenue, o.day FROM bench_customers c JOIN bench_orders o ON o.customer = c.id JOIN bench_items i ON i.ordered = o.id WHERE c.segment = 'BUILDING' AND o.day < DATE '1995-01-01' + CAST(:day AS int) GROUP BY o.id, o.day ORDER BY revenue DESC, o.day LIMIT 10;
\elif :which = 3
SELECT sum(price * discount) AS revenue FROM bench_items WHERE shipped >= DATE '1995-02-01' + CAST(:day AS int) AND discount BETWEEN 0.04 AND 0.06 AND quantity < 24;
\else
SELECT o.priority, count(*) AS n FROM bench_orders o WHERE o.day >= DATE '1995-01-01' + CAST(:day AS int) AND EXISTS (SELECT 1 FROM bench_items i WHERE i.ordered = o.id AND i.quantity > 10) GROUP BY o.priority ORDER BY o.priority;
\endif
