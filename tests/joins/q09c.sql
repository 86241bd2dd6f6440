-- Films of low rating that are not of one country, by keyword and kind; the same tables in a third order.
select min(f.title), min(co.name), count(*)
from film_keyword fk, film f, info_type t, film_company fc, keyword k, film_info i, company co, kind kd
where f.id = fk.film_id
  and fc.company_id = co.id
  and f.kind_id = kd.id
  and fk.keyword_id = k.id
  and kd.name in ('movie', 'tv series')
  and i.value < '3.0'
  and t.name = 'rating'
  and co.country <> '[us]'
  and f.year > 2000
  and f.id = i.film_id
  and i.type_id = t.id
  and k.word in ('sequel', 'revenge')
  and f.id = fc.film_id;
