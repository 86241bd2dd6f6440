-- The first texts by themselves.
select search_phrase
from visits
where search_phrase <> ''
order by search_phrase
limit 10;
