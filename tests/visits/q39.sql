-- Links of one site in a month, far down the list.
select url, count(*) as views
from visits
where site_id = 62
  and event_date between date '2026-07-01' and date '2026-07-31'
  and is_refresh = 0
  and is_link <> 0
  and is_download = 0
group by url
order by views desc, url
limit 10 offset 1000;
