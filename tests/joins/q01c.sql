-- Films since 2011 with one keyword; the same tables in a third order.
select min(f.title), count(*)
from keyword k, film_keyword fk, film f
where k.word = 'sequel'
  and f.year > 2010
  and f.id = fk.film_id
  and fk.keyword_id = k.id;
