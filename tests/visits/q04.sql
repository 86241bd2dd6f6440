-- The mean of large integers.
select avg(user_id)
from visits;
