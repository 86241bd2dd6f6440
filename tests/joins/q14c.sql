-- People with a part in a film of one year and in one of another: the cast twice; the same tables in a third order.
select min(p.name), count(*)
from keyword k, cast_info c, cast_info c2, film_keyword fk, person p, film f, kind kd, film f2
where p.birth > 1950
  and p.id = c2.person_id
  and f2.year = 1995
  and f2.id = c2.film_id
  and f.year = 2020
  and c.person_id = p.id
  and f.id = c.film_id
  and kd.name = 'short'
  and f.kind_id = kd.id
  and fk.keyword_id = k.id
  and k.word = 'love'
  and f.id = fk.film_id;
