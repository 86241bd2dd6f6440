-- One user, by number: user 50 of the generator.
select user_id
from visits
where user_id = 1152921504607242926;
