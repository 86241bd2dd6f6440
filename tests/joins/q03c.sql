-- Women who directed films of six years; the same tables in a third order.
select min(f.title), min(p.name), count(*)
from cast_info c, person p, film f, role r
where c.person_id = p.id
  and f.id = c.film_id
  and p.gender = 'f'
  and f.year between 2000 and 2005
  and c.role_id = r.id
  and r.name = 'director';
