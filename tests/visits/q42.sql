-- Sizes of windows on the most frequent page, far down the list.
select win_width, win_height, count(*) as views
from visits
where site_id = 62
  and event_date between date '2026-07-01' and date '2026-07-31'
  and is_refresh = 0
  and no_count = 0
  and url_hash = 2850178704830799621
group by win_width, win_height
order by views desc, win_width, win_height
limit 10 offset 10000;
