-- Minutes of two days, far down the list.
select date_trunc('minute', event_time) as at_minute, count(*) as views
from visits
where site_id = 62
  and event_date between date '2026-07-14' and date '2026-07-15'
  and is_refresh = 0
  and no_count = 0
group by at_minute
order by at_minute
limit 10 offset 1000;
