-- Women who directed films of six years.
select min(f.title), min(p.name), count(*)
from film f, cast_info c, person p, role r
where f.id = c.film_id
  and c.person_id = p.id
  and c.role_id = r.id
  and r.name = 'director'
  and p.gender = 'f'
  and f.year between 2000 and 2005;
