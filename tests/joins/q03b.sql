-- Women who directed films of six years; the same tables in another order.
select min(f.title), min(p.name), count(*)
from film f, person p, cast_info c, role r
where f.id = c.film_id
  and r.name = 'director'
  and c.role_id = r.id
  and f.year between 2000 and 2005
  and c.person_id = p.id
  and p.gender = 'f';
