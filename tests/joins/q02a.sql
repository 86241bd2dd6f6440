-- Films of one kind that companies of one country have produced.
select min(f.title), count(*)
from film f, film_company fc, company co, kind kd
where f.id = fc.film_id
  and fc.company_id = co.id
  and f.kind_id = kd.id
  and co.country = '[de]'
  and kd.name = 'movie'
  and fc.kind = 'production';
