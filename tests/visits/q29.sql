-- Groups by what a regular expression takes out of a text.
select
  regexp_replace(referer, '^https?://(?:www\.)?([^/]+)/.*$', '\1') as host,
  avg(length(referer)) as mean_length,
  count(*) as views,
  min(referer)
from visits
where referer <> ''
group by host
having count(*) > 5000
order by mean_length desc, host
limit 25;
