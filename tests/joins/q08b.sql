-- Men with a note on their part, in films of one keyword whose budget is known; the same tables in another order.
select min(f.title), count(*)
from film f, film_keyword fk, person p, keyword k, info_type t, cast_info c, film_info i
where fk.keyword_id = k.id
  and p.gender = 'm'
  and f.id = fk.film_id
  and f.id = i.film_id
  and i.type_id = t.id
  and f.year > 2000
  and f.id = c.film_id
  and k.word = 'superhero'
  and c.person_id = p.id
  and c.note = '(producer)'
  and t.name = 'budget';
