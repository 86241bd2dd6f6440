-- Different users by two columns of which one follows from the other.
select phone, phone_model, count(distinct user_id) as users
from visits
where phone_model <> ''
group by phone, phone_model
order by users desc, phone, phone_model
limit 10;
