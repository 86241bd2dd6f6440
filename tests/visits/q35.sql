-- The same with a constant among the keys.
select 1 as one, url, count(*) as views
from visits
group by one, url
order by views desc, url
limit 10;
