-- Eleven tables: leading women in films of high rating, by keyword, country and kind.
select min(f.title), min(p.name), min(co.name), count(*)
from film f, cast_info c, person p, role r, film_info i, info_type t, film_keyword fk, keyword k, film_company fc, company co, kind kd
where f.id = c.film_id
  and c.person_id = p.id
  and c.role_id = r.id
  and f.id = i.film_id
  and i.type_id = t.id
  and f.id = fk.film_id
  and fk.keyword_id = k.id
  and f.id = fc.film_id
  and fc.company_id = co.id
  and f.kind_id = kd.id
  and k.word in ('sequel', 'marvel', 'superhero')
  and t.name = 'rating'
  and i.value > '7.5'
  and r.name = 'actress'
  and kd.name = 'movie'
  and co.country in ('[us]', '[gb]')
  and fc.kind = 'production'
  and p.gender = 'f'
  and c.nr < 5
  and f.year > 2010;
