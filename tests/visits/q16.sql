-- Users with most rows.
select user_id, count(*)
from visits
group by user_id
order by count(*) desc, user_id
limit 10;
