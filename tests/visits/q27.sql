-- The first texts by time, then by themselves.
select search_phrase
from visits
where search_phrase <> ''
order by event_time, search_phrase
limit 10;
