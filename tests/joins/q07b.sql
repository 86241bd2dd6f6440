-- Women with a note on their part, in films with companies of one country; the same tables in another order.
select min(p.name), min(f.title), count(*)
from role r, film f, cast_info c, company co, person p, film_company fc
where co.country = '[jp]'
  and c.note = '(voice)'
  and c.role_id = r.id
  and f.id = c.film_id
  and p.gender = 'f'
  and r.name = 'actress'
  and fc.company_id = co.id
  and f.id = fc.film_id
  and f.year between 2005 and 2015
  and c.person_id = p.id;
