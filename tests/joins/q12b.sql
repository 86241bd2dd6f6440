-- Men and what they wrote: films of one genre and kind, by a condition with an OR; the same tables in another order.
select min(p.name), min(f.title), count(*)
from cast_info c, role r, film_info i, film_keyword fk, info_type t, film f, kind kd, keyword k, person p
where c.person_id = p.id
  and i.value = 'Horror'
  and f.id = c.film_id
  and c.role_id = r.id
  and (c.note = '(writer)' or c.note = '')
  and kd.name = 'movie'
  and t.name = 'genres'
  and f.id = fk.film_id
  and f.year between 1980 and 2000
  and k.word in ('murder', 'violence', 'blood', 'revenge')
  and r.name = 'writer'
  and fk.keyword_id = k.id
  and f.id = i.film_id
  and i.type_id = t.id
  and f.kind_id = kd.id
  and p.gender = 'm';
