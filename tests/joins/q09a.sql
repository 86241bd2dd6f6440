-- Films of low rating that are not of one country, by keyword and kind.
select min(f.title), min(co.name), count(*)
from film f, film_company fc, company co, film_keyword fk, keyword k, film_info i, info_type t, kind kd
where f.id = fc.film_id
  and fc.company_id = co.id
  and f.id = fk.film_id
  and fk.keyword_id = k.id
  and f.id = i.film_id
  and i.type_id = t.id
  and f.kind_id = kd.id
  and k.word in ('sequel', 'revenge')
  and co.country <> '[us]'
  and t.name = 'rating'
  and i.value < '3.0'
  and kd.name in ('movie', 'tv series')
  and f.year > 2000;
