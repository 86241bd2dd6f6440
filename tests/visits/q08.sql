-- Few groups of few rows.
select adv_id, count(*)
from visits
where adv_id <> 0
group by adv_id
order by count(*) desc, adv_id;
