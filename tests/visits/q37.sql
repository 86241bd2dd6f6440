-- Pages of one site in a month.
select url, count(*) as views
from visits
where site_id = 62
  and event_date between date '2026-07-01' and date '2026-07-31'
  and is_refresh = 0
  and no_count = 0
  and url <> ''
group by url
order by views desc, url
limit 10;
