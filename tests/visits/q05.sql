-- Different users: as many as a fifth of the rows.
select count(distinct user_id)
from visits;
