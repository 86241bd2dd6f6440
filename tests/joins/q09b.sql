-- Films of low rating that are not of one country, by keyword and kind; the same tables in another order.
select min(f.title), min(co.name), count(*)
from keyword k, kind kd, film_company fc, company co, info_type t, film f, film_info i, film_keyword fk
where t.name = 'rating'
  and f.year > 2000
  and k.word in ('sequel', 'revenge')
  and i.value < '3.0'
  and fc.company_id = co.id
  and f.kind_id = kd.id
  and co.country <> '[us]'
  and i.type_id = t.id
  and f.id = i.film_id
  and f.id = fk.film_id
  and kd.name in ('movie', 'tv series')
  and f.id = fc.film_id
  and fk.keyword_id = k.id;
