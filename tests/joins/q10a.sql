-- People by the first letter of their names, in films of one country and one keyword.
select min(f.title), min(p.name), count(*)
from film f, cast_info c, person p, role r, film_keyword fk, keyword k, film_company fc, company co
where f.id = c.film_id
  and c.person_id = p.id
  and c.role_id = r.id
  and f.id = fk.film_id
  and fk.keyword_id = k.id
  and f.id = fc.film_id
  and fc.company_id = co.id
  and k.word = 'character-name-in-title'
  and co.country = '[us]'
  and p.name like 'B%'
  and r.name = 'actor'
  and f.year > 2018;
