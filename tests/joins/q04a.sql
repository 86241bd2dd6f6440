-- Films of high rating with one keyword.
select min(f.title), count(*)
from film f, film_info i, info_type t, film_keyword fk, keyword k
where f.id = i.film_id
  and i.type_id = t.id
  and f.id = fk.film_id
  and fk.keyword_id = k.id
  and t.name = 'rating'
  and i.value > '8.0'
  and k.word = 'marvel'
  and f.year > 2005;
