-- Titles of one site in a month.
select page_title, count(*) as views
from visits
where site_id = 62
  and event_date between date '2026-07-01' and date '2026-07-31'
  and is_refresh = 0
  and no_count = 0
  and page_title <> ''
group by page_title
order by views desc, page_title
limit 10;
