-- Men and what they wrote: films of one genre and kind, by a condition with an OR; the same tables in a third order.
select min(p.name), min(f.title), count(*)
from role r, keyword k, cast_info c, kind kd, person p, film_keyword fk, info_type t, film f, film_info i
where i.value = 'Horror'
  and c.person_id = p.id
  and k.word in ('murder', 'violence', 'blood', 'revenge')
  and p.gender = 'm'
  and t.name = 'genres'
  and kd.name = 'movie'
  and f.id = fk.film_id
  and r.name = 'writer'
  and c.role_id = r.id
  and (c.note = '(writer)' or c.note = '')
  and f.year between 1980 and 2000
  and f.id = c.film_id
  and f.id = i.film_id
  and f.kind_id = kd.id
  and fk.keyword_id = k.id
  and i.type_id = t.id;
