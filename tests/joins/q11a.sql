-- Genre and rating of documentaries: the facts on a film twice. Kind and genre go together.
select min(i.value), min(i2.value), min(f.title), count(*)
from film f, film_info i, info_type t, film_info i2, info_type t2, film_company fc, company co, kind kd
where f.id = i.film_id
  and i.type_id = t.id
  and f.id = i2.film_id
  and i2.type_id = t2.id
  and f.id = fc.film_id
  and fc.company_id = co.id
  and f.kind_id = kd.id
  and t.name = 'genres'
  and i.value = 'Documentary'
  and t2.name = 'rating'
  and i2.value > '7.0'
  and kd.name = 'documentary'
  and co.country = '[gb]'
  and f.year > 1990;
