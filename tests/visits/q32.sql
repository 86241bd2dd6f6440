-- A group for each of some rows.
select visit_id, client_ip, count(*) as views, sum(is_refresh), avg(res_width)
from visits
where search_phrase <> ''
group by visit_id, client_ip
order by views desc, visit_id
limit 10;
