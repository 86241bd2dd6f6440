-- Groups of a number and an address, of some rows.
select engine_id, client_ip, count(*) as views, sum(is_refresh), avg(res_width)
from visits
where search_phrase <> ''
group by engine_id, client_ip
order by views desc, engine_id, client_ip
limit 10;
