-- Two films that share a rare keyword: the keywords of films twice; the same tables in a third order.
select min(f.title), min(f2.title), count(*)
from film_company fc, film f, film_keyword fk2, film_keyword fk, film f2, keyword k, company co
where f.id = fc.film_id
  and f.id = fk.film_id
  and fk2.keyword_id = k.id
  and co.country = '[fr]'
  and fc.company_id = co.id
  and f2.id = fk2.film_id
  and f2.year < 1980
  and f.year > 2010
  and k.word = 'word-5000'
  and fk.keyword_id = k.id;
