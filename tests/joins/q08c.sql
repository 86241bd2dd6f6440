-- Men with a note on their part, in films of one keyword whose budget is known; the same tables in a third order.
select min(f.title), count(*)
from film f, keyword k, info_type t, person p, film_keyword fk, film_info i, cast_info c
where c.note = '(producer)'
  and f.year > 2000
  and i.type_id = t.id
  and f.id = c.film_id
  and fk.keyword_id = k.id
  and k.word = 'superhero'
  and t.name = 'budget'
  and c.person_id = p.id
  and f.id = fk.film_id
  and p.gender = 'm'
  and f.id = i.film_id;
