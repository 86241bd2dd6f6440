-- Films of high rating with one keyword; the same tables in another order.
select min(f.title), count(*)
from film_keyword fk, film_info i, film f, keyword k, info_type t
where f.id = fk.film_id
  and i.type_id = t.id
  and i.value > '8.0'
  and fk.keyword_id = k.id
  and k.word = 'marvel'
  and t.name = 'rating'
  and f.year > 2005
  and f.id = i.film_id;
