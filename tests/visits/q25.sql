-- The first texts by time.
select search_phrase
from visits
where search_phrase <> ''
order by event_time, visit_id
limit 10;
