-- A part of a text, in few rows.
select count(*)
from visits
where url like '%google%';
