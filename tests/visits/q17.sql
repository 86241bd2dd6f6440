-- Many groups of a user and a text.
select user_id, search_phrase, count(*)
from visits
group by user_id, search_phrase
order by count(*) desc, user_id, search_phrase
limit 10;
