-- Films of high rating with one keyword; the same tables in a third order.
select min(f.title), count(*)
from film_info i, info_type t, keyword k, film f, film_keyword fk
where i.value > '8.0'
  and k.word = 'marvel'
  and f.id = fk.film_id
  and t.name = 'rating'
  and f.year > 2005
  and f.id = i.film_id
  and i.type_id = t.id
  and fk.keyword_id = k.id;
