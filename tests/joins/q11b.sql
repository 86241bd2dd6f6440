-- Genre and rating of documentaries: the facts on a film twice. Kind and genre go together; the same tables in another order.
select min(i.value), min(i2.value), min(f.title), count(*)
from info_type t, company co, film_info i, film_company fc, film f, info_type t2, film_info i2, kind kd
where kd.name = 'documentary'
  and f.kind_id = kd.id
  and i.value = 'Documentary'
  and i2.value > '7.0'
  and fc.company_id = co.id
  and f.id = i2.film_id
  and co.country = '[gb]'
  and f.id = fc.film_id
  and t2.name = 'rating'
  and f.year > 1990
  and i.type_id = t.id
  and i2.type_id = t2.id
  and f.id = i.film_id
  and t.name = 'genres';
