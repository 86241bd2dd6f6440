-- People by the first letter of their names, in films of one country and one keyword; the same tables in a third order.
select min(f.title), min(p.name), count(*)
from person p, keyword k, cast_info c, role r, film_company fc, film f, film_keyword fk, company co
where f.id = c.film_id
  and k.word = 'character-name-in-title'
  and fk.keyword_id = k.id
  and f.id = fc.film_id
  and fc.company_id = co.id
  and f.id = fk.film_id
  and c.role_id = r.id
  and co.country = '[us]'
  and f.year > 2018
  and r.name = 'actor'
  and c.person_id = p.id
  and p.name like 'B%';
