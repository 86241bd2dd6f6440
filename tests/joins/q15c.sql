-- Eleven tables: leading women in films of high rating, by keyword, country and kind; the same tables in a third order.
select min(f.title), min(p.name), min(co.name), count(*)
from keyword k, person p, info_type t, kind kd, company co, film f, film_info i, cast_info c, film_company fc, film_keyword fk, role r
where f.kind_id = kd.id
  and f.id = fk.film_id
  and f.id = c.film_id
  and i.type_id = t.id
  and f.year > 2010
  and r.name = 'actress'
  and c.nr < 5
  and k.word in ('sequel', 'marvel', 'superhero')
  and fk.keyword_id = k.id
  and f.id = fc.film_id
  and fc.company_id = co.id
  and kd.name = 'movie'
  and c.role_id = r.id
  and t.name = 'rating'
  and c.person_id = p.id
  and co.country in ('[us]', '[gb]')
  and f.id = i.film_id
  and p.gender = 'f'
  and i.value > '7.5'
  and fc.kind = 'production';
