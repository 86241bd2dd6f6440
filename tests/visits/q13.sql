-- The most frequent texts.
select search_phrase, count(*) as views
from visits
where search_phrase <> ''
group by search_phrase
order by views desc, search_phrase
limit 10;
