-- Two films that share a rare keyword: the keywords of films twice.
select min(f.title), min(f2.title), count(*)
from film f, film_keyword fk, keyword k, film_keyword fk2, film f2, film_company fc, company co
where f.id = fk.film_id
  and fk.keyword_id = k.id
  and fk2.keyword_id = k.id
  and f2.id = fk2.film_id
  and f.id = fc.film_id
  and fc.company_id = co.id
  and k.word = 'word-5000'
  and co.country = '[fr]'
  and f.year > 2010
  and f2.year < 1980;
