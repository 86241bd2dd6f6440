-- Genre and rating of documentaries: the facts on a film twice. Kind and genre go together; the same tables in a third order.
select min(i.value), min(i2.value), min(f.title), count(*)
from film_company fc, film_info i, film f, info_type t2, film_info i2, kind kd, company co, info_type t
where fc.company_id = co.id
  and t2.name = 'rating'
  and f.id = i.film_id
  and f.id = i2.film_id
  and kd.name = 'documentary'
  and i.type_id = t.id
  and t.name = 'genres'
  and i.value = 'Documentary'
  and co.country = '[gb]'
  and f.year > 1990
  and i2.type_id = t2.id
  and f.id = fc.film_id
  and i2.value > '7.0'
  and f.kind_id = kd.id;
