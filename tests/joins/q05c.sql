-- Old films of two genres with a note on their company; the same tables in a third order.
select min(f.title), min(i.value), count(*)
from info_type t, company co, film_info i, film_company fc, kind kd, film f
where f.id = i.film_id
  and i.value in ('Horror', 'Thriller')
  and f.id = fc.film_id
  and kd.name = 'movie'
  and t.name = 'genres'
  and i.type_id = t.id
  and f.kind_id = kd.id
  and co.country = '[us]'
  and fc.company_id = co.id
  and fc.note like '%co-production%'
  and f.year < 1990;
