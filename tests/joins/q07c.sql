-- Women with a note on their part, in films with companies of one country; the same tables in a third order.
select min(p.name), min(f.title), count(*)
from company co, cast_info c, film f, role r, film_company fc, person p
where fc.company_id = co.id
  and f.id = fc.film_id
  and f.id = c.film_id
  and p.gender = 'f'
  and co.country = '[jp]'
  and r.name = 'actress'
  and c.person_id = p.id
  and c.note = '(voice)'
  and c.role_id = r.id
  and f.year between 2005 and 2015;
