-- Groups by a part of a time.
select user_id, extract(minute from event_time) as at_minute, search_phrase, count(*)
from visits
group by user_id, at_minute, search_phrase
order by count(*) desc, user_id, at_minute, search_phrase
limit 10;
