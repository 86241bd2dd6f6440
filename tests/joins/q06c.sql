-- People by the beginning of their names, in films of three keywords; the same tables in a third order.
select min(p.name), min(f.title), count(*)
from keyword k, film f, person p, film_keyword fk, cast_info c
where f.id = fk.film_id
  and f.year > 2015
  and k.word in ('murder', 'blood', 'violence')
  and fk.keyword_id = k.id
  and p.name like 'Ka%'
  and c.person_id = p.id
  and f.id = c.film_id;
