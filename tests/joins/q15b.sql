-- Eleven tables: leading women in films of high rating, by keyword, country and kind; the same tables in another order.
select min(f.title), min(p.name), min(co.name), count(*)
from kind kd, film f, film_keyword fk, role r, company co, film_info i, cast_info c, keyword k, person p, info_type t, film_company fc
where f.id = c.film_id
  and co.country in ('[us]', '[gb]')
  and i.value > '7.5'
  and c.role_id = r.id
  and f.year > 2010
  and c.person_id = p.id
  and p.gender = 'f'
  and k.word in ('sequel', 'marvel', 'superhero')
  and f.id = i.film_id
  and fk.keyword_id = k.id
  and t.name = 'rating'
  and i.type_id = t.id
  and r.name = 'actress'
  and c.nr < 5
  and fc.company_id = co.id
  and f.id = fk.film_id
  and f.kind_id = kd.id
  and fc.kind = 'production'
  and kd.name = 'movie'
  and f.id = fc.film_id;
