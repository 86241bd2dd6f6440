-- Bounds, which are in the footers of files.
select min(event_date), max(event_date)
from visits;
