-- Groups of long texts.
select url, count(*) as views
from visits
group by url
order by views desc, url
limit 10;
