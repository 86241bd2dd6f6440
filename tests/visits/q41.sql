-- Days of those who came from the most frequent page, which has number 1 in the generator.
select url_hash, event_date, count(*) as views
from visits
where site_id = 62
  and event_date between date '2026-07-01' and date '2026-07-31'
  and is_refresh = 0
  and traffic_source in (-1, 6)
  and referer_hash = 2850178704830799621
group by url_hash, event_date
order by views desc, url_hash, event_date
limit 10 offset 100;
