-- Films since 2011 with one keyword; the same tables in another order.
select min(f.title), count(*)
from film f, keyword k, film_keyword fk
where fk.keyword_id = k.id
  and f.id = fk.film_id
  and k.word = 'sequel'
  and f.year > 2010;
