-- Groups of a number and a text.
select engine_id, search_phrase, count(*) as views
from visits
where search_phrase <> ''
group by engine_id, search_phrase
order by views desc, engine_id, search_phrase
limit 10;
