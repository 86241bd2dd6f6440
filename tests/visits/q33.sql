-- A group for every row.
select visit_id, client_ip, count(*) as views, sum(is_refresh), avg(res_width)
from visits
group by visit_id, client_ip
order by views desc, visit_id
limit 10;
