-- People with a part in a film of one year and in one of another: the cast twice.
select min(p.name), count(*)
from film f, cast_info c, person p, cast_info c2, film f2, kind kd, film_keyword fk, keyword k
where f.id = c.film_id
  and c.person_id = p.id
  and p.id = c2.person_id
  and f2.id = c2.film_id
  and f.kind_id = kd.id
  and f.id = fk.film_id
  and fk.keyword_id = k.id
  and kd.name = 'short'
  and k.word = 'love'
  and f.year = 2020
  and f2.year = 1995
  and p.birth > 1950;
