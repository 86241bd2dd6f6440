-- People by the first letter of their names, in films of one country and one keyword; the same tables in another order.
select min(f.title), min(p.name), count(*)
from film_keyword fk, film_company fc, person p, role r, company co, film f, cast_info c, keyword k
where p.name like 'B%'
  and fk.keyword_id = k.id
  and c.person_id = p.id
  and fc.company_id = co.id
  and f.id = fk.film_id
  and k.word = 'character-name-in-title'
  and r.name = 'actor'
  and co.country = '[us]'
  and f.id = fc.film_id
  and c.role_id = r.id
  and f.id = c.film_id
  and f.year > 2018;
