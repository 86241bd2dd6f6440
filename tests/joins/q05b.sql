-- Old films of two genres with a note on their company; the same tables in another order.
select min(f.title), min(i.value), count(*)
from company co, kind kd, info_type t, film_info i, film f, film_company fc
where co.country = '[us]'
  and f.id = fc.film_id
  and fc.note like '%co-production%'
  and kd.name = 'movie'
  and i.value in ('Horror', 'Thriller')
  and fc.company_id = co.id
  and f.id = i.film_id
  and f.year < 1990
  and f.kind_id = kd.id
  and i.type_id = t.id
  and t.name = 'genres';
