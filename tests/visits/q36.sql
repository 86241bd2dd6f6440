-- Keys that follow from one of them.
select client_ip, client_ip - 1, client_ip - 2, client_ip - 3, count(*) as views
from visits
group by client_ip, client_ip - 1, client_ip - 2, client_ip - 3
order by views desc, client_ip
limit 10;
