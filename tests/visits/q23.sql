-- Parts of two texts, one that is not to be there.
select search_phrase, min(url), min(page_title), count(*) as views, count(distinct user_id)
from visits
where page_title like '%Google%' and url not like '%.google.%' and search_phrase <> ''
group by search_phrase
order by views desc, search_phrase
limit 10;
