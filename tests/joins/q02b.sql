-- Films of one kind that companies of one country have produced; the same tables in another order.
select min(f.title), count(*)
from film_company fc, kind kd, film f, company co
where f.kind_id = kd.id
  and fc.kind = 'production'
  and fc.company_id = co.id
  and co.country = '[de]'
  and f.id = fc.film_id
  and kd.name = 'movie';
