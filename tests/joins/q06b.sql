-- People by the beginning of their names, in films of three keywords; the same tables in another order.
select min(p.name), min(f.title), count(*)
from person p, keyword k, cast_info c, film_keyword fk, film f
where c.person_id = p.id
  and fk.keyword_id = k.id
  and f.year > 2015
  and p.name like 'Ka%'
  and k.word in ('murder', 'blood', 'violence')
  and f.id = fk.film_id
  and f.id = c.film_id;
