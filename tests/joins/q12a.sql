-- Men and what they wrote: films of one genre and kind, by a condition with an OR.
select min(p.name), min(f.title), count(*)
from film f, cast_info c, person p, role r, film_info i, info_type t, film_keyword fk, keyword k, kind kd
where f.id = c.film_id
  and c.person_id = p.id
  and c.role_id = r.id
  and f.id = i.film_id
  and i.type_id = t.id
  and f.id = fk.film_id
  and fk.keyword_id = k.id
  and f.kind_id = kd.id
  and k.word in ('murder', 'violence', 'blood', 'revenge')
  and t.name = 'genres'
  and i.value = 'Horror'
  and r.name = 'writer'
  and (c.note = '(writer)' or c.note = '')
  and kd.name = 'movie'
  and p.gender = 'm'
  and f.year between 1980 and 2000;
