-- All columns of a few rows.
select *
from visits
where url like '%google%'
order by event_time, visit_id
limit 10;
