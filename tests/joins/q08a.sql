-- Men with a note on their part, in films of one keyword whose budget is known.
select min(f.title), count(*)
from film f, cast_info c, person p, film_keyword fk, keyword k, film_info i, info_type t
where f.id = c.film_id
  and c.person_id = p.id
  and f.id = fk.film_id
  and fk.keyword_id = k.id
  and f.id = i.film_id
  and i.type_id = t.id
  and k.word = 'superhero'
  and t.name = 'budget'
  and p.gender = 'm'
  and c.note = '(producer)'
  and f.year > 2000;
