-- Different users of each telephone.
select phone_model, count(distinct user_id) as users
from visits
where phone_model <> ''
group by phone_model
order by users desc, phone_model
limit 10;
