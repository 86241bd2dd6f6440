-- Different texts, most of them empty.
select count(distinct search_phrase)
from visits;
