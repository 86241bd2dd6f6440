-- Rows with an advertisement: few.
select count(*)
from visits
where adv_id <> 0;
