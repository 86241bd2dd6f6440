-- People by the beginning of their names, in films of three keywords.
select min(p.name), min(f.title), count(*)
from film f, cast_info c, person p, film_keyword fk, keyword k
where f.id = c.film_id
  and c.person_id = p.id
  and f.id = fk.film_id
  and fk.keyword_id = k.id
  and k.word in ('murder', 'blood', 'violence')
  and p.name like 'Ka%'
  and f.year > 2015;
