-- Several aggregates in each region, one of them over different values.
select region_id, sum(adv_id), count(*) as views, avg(res_width), count(distinct user_id)
from visits
group by region_id
order by views desc, region_id
limit 10;
