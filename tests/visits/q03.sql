-- Aggregates over all rows.
select sum(adv_id), count(*), avg(res_width)
from visits;
