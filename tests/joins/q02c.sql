-- Films of one kind that companies of one country have produced; the same tables in a third order.
select min(f.title), count(*)
from film_company fc, kind kd, company co, film f
where co.country = '[de]'
  and f.kind_id = kd.id
  and kd.name = 'movie'
  and fc.company_id = co.id
  and fc.kind = 'production'
  and f.id = fc.film_id;
