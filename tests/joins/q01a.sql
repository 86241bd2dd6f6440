-- Films since 2011 with one keyword.
select min(f.title), count(*)
from film f, film_keyword fk, keyword k
where f.id = fk.film_id
  and fk.keyword_id = k.id
  and k.word = 'sequel'
  and f.year > 2010;
