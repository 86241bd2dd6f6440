-- Women with a note on their part, in films with companies of one country.
select min(p.name), min(f.title), count(*)
from film f, cast_info c, person p, role r, film_company fc, company co
where f.id = c.film_id
  and c.person_id = p.id
  and c.role_id = r.id
  and f.id = fc.film_id
  and fc.company_id = co.id
  and r.name = 'actress'
  and c.note = '(voice)'
  and co.country = '[jp]'
  and p.gender = 'f'
  and f.year between 2005 and 2015;
