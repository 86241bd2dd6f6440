-- Two films that share a rare keyword: the keywords of films twice; the same tables in another order.
select min(f.title), min(f2.title), count(*)
from company co, keyword k, film_keyword fk2, film f2, film_keyword fk, film_company fc, film f
where f2.year < 1980
  and f2.id = fk2.film_id
  and k.word = 'word-5000'
  and fk.keyword_id = k.id
  and f.year > 2010
  and fc.company_id = co.id
  and f.id = fc.film_id
  and co.country = '[fr]'
  and f.id = fk.film_id
  and fk2.keyword_id = k.id;
