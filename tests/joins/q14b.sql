-- People with a part in a film of one year and in one of another: the cast twice; the same tables in another order.
select min(p.name), count(*)
from film f, cast_info c2, cast_info c, person p, kind kd, keyword k, film f2, film_keyword fk
where f.kind_id = kd.id
  and fk.keyword_id = k.id
  and f.id = fk.film_id
  and p.id = c2.person_id
  and f.id = c.film_id
  and kd.name = 'short'
  and k.word = 'love'
  and p.birth > 1950
  and f.year = 2020
  and c.person_id = p.id
  and f2.id = c2.film_id
  and f2.year = 1995;
