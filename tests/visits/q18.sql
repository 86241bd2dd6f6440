-- Any ten groups: a limit without an order, so that only the number of rows is compared.
select user_id, search_phrase, count(*)
from visits
group by user_id, search_phrase
limit 10;
