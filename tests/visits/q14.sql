-- Different users of each text.
select search_phrase, count(distinct user_id) as users
from visits
where search_phrase <> ''
group by search_phrase
order by users desc, search_phrase
limit 10;
