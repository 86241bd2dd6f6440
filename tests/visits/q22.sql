-- The same, grouped by another text.
select search_phrase, min(url), count(*) as views
from visits
where url like '%google%' and search_phrase <> ''
group by search_phrase
order by views desc, search_phrase
limit 10;
