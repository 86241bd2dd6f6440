-- Lengths of texts, in large groups.
select site_id, avg(length(url)) as mean_length, count(*) as views
from visits
where url <> ''
group by site_id
having count(*) > 5000
order by mean_length desc, site_id
limit 25;
