-- Rows.
select count(*)
from visits;
