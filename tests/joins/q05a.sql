-- Old films of two genres with a note on their company.
select min(f.title), min(i.value), count(*)
from film f, film_info i, info_type t, film_company fc, company co, kind kd
where f.id = i.film_id
  and i.type_id = t.id
  and f.id = fc.film_id
  and fc.company_id = co.id
  and f.kind_id = kd.id
  and t.name = 'genres'
  and i.value in ('Horror', 'Thriller')
  and co.country = '[us]'
  and fc.note like '%co-production%'
  and kd.name = 'movie'
  and f.year < 1990;
