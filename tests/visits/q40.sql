-- From where to where, on one site in a month, far down the list.
select traffic_source, engine_id, adv_id,
  case when engine_id = 0 and adv_id = 0 then referer else '' end as source, url as target, count(*) as views
from visits
where site_id = 62
  and event_date between date '2026-07-01' and date '2026-07-31'
  and is_refresh = 0
group by traffic_source, engine_id, adv_id, source, target
order by views desc, traffic_source, engine_id, adv_id, source, target
limit 10 offset 1000;
