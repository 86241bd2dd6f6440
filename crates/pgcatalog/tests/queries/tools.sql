-- What pgAdmin, DataGrip, Hasura, PostGraphile and others ask beside the tables of the catalogs, and what PostgreSQL 15 answers.

-- acldefault of every kind
SELECT acldefault('r', 10), acldefault('n', 10), acldefault('d', 10), acldefault('f', 10), acldefault('l', 10), acldefault('L', 10), acldefault('t', 10), acldefault('F', 10), acldefault('S', 10), acldefault('T', 10), acldefault('s', 10), acldefault('c', 10)
----
=> acldefault	acldefault	acldefault	acldefault	acldefault	acldefault	acldefault	acldefault	acldefault	acldefault	acldefault	acldefault
{harrier=arwdDxt/harrier}	{harrier=UC/harrier}	{=Tc/harrier,harrier=CTc/harrier}	{=X/harrier,harrier=X/harrier}	{=U/harrier,harrier=U/harrier}	{harrier=rw/harrier}	{harrier=C/harrier}	{harrier=U/harrier}	{harrier=U/harrier}	{=U/harrier,harrier=U/harrier}	{harrier=rwU/harrier}	{}

-- aclexplode in a list
SELECT (aclexplode(relacl)).privilege_type, (aclexplode(relacl)).is_grantable, relname FROM pg_class WHERE relname = 'region'
----
=> privilege_type	is_grantable	relname
INSERT	f	region
SELECT	f	region
UPDATE	f	region
DELETE	f	region
TRUNCATE	f	region
REFERENCES	f	region
TRIGGER	f	region
SELECT	f	region

-- aclexplode in FROM
SELECT c.relname, a.grantee = a.grantor AS own, a.privilege_type, is_grantable FROM pg_class c, aclexplode(c.relacl) a WHERE c.relname = 'region'
----
=> relname	own	privilege_type	is_grantable
region	t	INSERT	f
region	t	SELECT	f
region	t	UPDATE	f
region	t	DELETE	f
region	t	TRUNCATE	f
region	t	REFERENCES	f
region	t	TRIGGER	f
region	f	SELECT	f

-- aclexplode in an outer join with a subquery
SELECT c.relname, acl.kind FROM (SELECT relname, relacl FROM pg_class WHERE relname IN ('region', 'orders')) c LEFT JOIN LATERAL aclexplode(relacl) AS acl (grantor, grantee, kind, option) ON true
----
=> relname	kind
orders	\N
region	INSERT
region	SELECT
region	UPDATE
region	DELETE
region	TRUNCATE
region	REFERENCES
region	TRIGGER
region	SELECT

-- aclexplode of defaults, grouped
SELECT count(*), min(privilege_type) FROM (SELECT (acl).privilege_type FROM (SELECT aclexplode(coalesce(relacl, acldefault('r', relowner))) AS acl FROM pg_class WHERE relname = 'orders') d) x
----
=> count	min
7	DELETE

-- JSON of values
SELECT json_build_object('a', 1, 'b', 'x"y', 'c', NULL, 'd', true, 'e', 1.5), json_build_array(1, 'a', NULL), to_json('a'::text), to_json(ARRAY[1, 2]), array_to_json(ARRAY['a', NULL]), jsonb_build_object('bb', 1, 'a', 2), jsonb_build_array(1, 'a'), to_json(DATE '2020-01-02'), to_json(TIMESTAMP '2020-01-02 03:04:05.5'), to_json(NULL::text)
----
=> json_build_object	json_build_array	to_json	to_json	array_to_json	jsonb_build_object	jsonb_build_array	to_json	to_json	to_json
{"a" : 1, "b" : "x\"y", "c" : null, "d" : true, "e" : 1.5}	[1, "a", null]	"a"	[1,2]	["a",null]	{"a": 2, "bb": 1}	[1, "a"]	"2020-01-02"	"2020-01-02T03:04:05.5"	\N

-- JSON of rows of a common table expression and of a system relation
WITH c AS (SELECT nspname AS name, nspname = 'sales' AS is_sales FROM pg_namespace WHERE nspname IN ('main', 'sales')) SELECT row_to_json(c) AS object FROM c UNION ALL SELECT row_to_json(s) FROM (SELECT spcname AS name, spcname = 'x' AS is_sales FROM pg_tablespace WHERE spcname = 'pg_default') s UNION ALL SELECT json_build_object('types', to_json(k)) FROM (SELECT word, catcode FROM pg_get_keywords() WHERE word = 'abort') k
----
=> object
{"name":"main","is_sales":false}
{"name":"sales","is_sales":true}
{"name":"pg_default","is_sales":false}
{"types" : {"word":"abort","catcode":"U"}}

-- numbers of transactions
SELECT age(xmin) >= 0 AS age, c.xmin::text::bigint <= txid_current() AS old, xmax, tableoid FROM pg_class c WHERE relname = 'orders' AND pg_catalog.age(c.xmin) <= coalesce(nullif(greatest(pg_catalog.age('3'::varchar::xid), -1), -1), 2147483647) ORDER BY xmin::varchar::bigint
----
=> age	old	xmax	tableoid
t	t	0	1259

-- tableoid of one relation
SELECT tableoid, amname FROM pg_am
----
=> tableoid	amname
2601	heap
2601	btree
2601	hash
2601	gist
2601	gin
2601	spgist
2601	brin

-- letters of names
SELECT typname, typname[0] = '_' AS is_array FROM pg_type WHERE typname IN ('int4', '_int4')
----
=> typname	is_array
_int4	t
int4	f

-- arrays of types of objects
SELECT '{23,25}'::oid[], '{int4,text}'::regtype[]::oid[], typname FROM pg_type WHERE oid = ANY ('{16,17}'::pg_catalog.oid[]) AND oid <> 'bytea'::regtype
----
=> oid	oid	typname
{23,25}	{23,25}	bool

-- types of objects that only PostgreSQL has
SELECT 'simple'::regdictionary::oid, 'english'::regconfig::oid > 0, '"C"'::regcollation::oid, 'simple'::regconfig
----
=> oid	?column?	oid	regconfig
3765	t	950	simple

-- numbers of objects beside other numbers
SELECT 'pg_class'::regclass AS class, 1 AS a UNION ALL SELECT oid, 2 FROM pg_class WHERE relname = 'pg_type'
----
=> class	a
pg_class	1
pg_type	2

-- functions that views are made of
SELECT name, setting FROM pg_show_all_settings() s WHERE s.name = 'max_index_keys'
----
=> name	setting
max_index_keys	32

-- what does not exist
SELECT pg_blocking_pids(1), pg_partition_root('orders'), row_security_active('orders'), pg_index_column_has_property('orders'::regclass, 1, 'asc'), host('10.0.0.1/8'), (SELECT count(*) FROM pg_partition_ancestors('orders')), (SELECT count(*) FROM pg_partition_tree('orders'))
----
=> pg_blocking_pids	pg_partition_root	row_security_active	pg_index_column_has_property	host	count	count
{}	\N	f	\N	10.0.0.1	0	0

-- what matches a pattern
SELECT substring('fillfactor=70' FROM 'factor=([0-9]*)'), substring('hello' FROM '...$'), substring('x' FROM 'y')
----
=> substring	substring	substring
70	llo	\N

-- limits in EXISTS
SELECT nspname, EXISTS (SELECT 1 FROM pg_class WHERE relname = 'pg_class' AND relnamespace = n.oid LIMIT 1) AS has FROM pg_namespace n WHERE nspname IN ('main', 'pg_catalog')
----
=> nspname	has
pg_catalog	t
main	f

-- elements beside always empty arrays
SELECT relname, 'a' = ANY (reloptions) AS option, array_remove(reloptions, 'a') AS rest FROM pg_class WHERE relname = 'orders'
----
=> relname	option	rest
orders	\N	\N

-- conditions that are texts
SELECT count(*) FROM (SELECT 1) t WHERE ('true')
----
=> count
1

-- privileges of tables and columns
SELECT grantee, table_name, privilege_type, is_grantable FROM information_schema.table_privileges WHERE table_schema = 'sales' OR table_name = 'pg_am'
----
=> grantee	table_name	privilege_type	is_grantable
harrier	region	INSERT	YES
harrier	region	SELECT	YES
harrier	region	UPDATE	YES
harrier	region	DELETE	YES
harrier	region	TRUNCATE	YES
harrier	region	REFERENCES	YES
harrier	region	TRIGGER	YES
readers	region	SELECT	NO
harrier	pg_am	INSERT	YES
harrier	pg_am	SELECT	YES
harrier	pg_am	UPDATE	YES
harrier	pg_am	DELETE	YES
harrier	pg_am	TRUNCATE	YES
harrier	pg_am	REFERENCES	YES
harrier	pg_am	TRIGGER	YES
PUBLIC	pg_am	SELECT	NO

-- privileges of columns
SELECT DISTINCT grantee, privilege_type FROM information_schema.column_privileges WHERE table_name = 'region'
----
=> grantee	privilege_type
harrier	INSERT
harrier	REFERENCES
harrier	SELECT
harrier	UPDATE
readers	SELECT

-- character sets
SELECT character_set_name, character_repertoire, form_of_use FROM information_schema.character_sets
----
=> character_set_name	character_repertoire	form_of_use
UTF8	UCS	UTF8

-- parts of types as jOOQ asks for them
SELECT attname, information_schema._pg_char_max_length(atttypid, atttypmod) AS length, information_schema._pg_char_octet_length(atttypid, atttypmod) AS bytes, information_schema._pg_numeric_precision(atttypid, atttypmod) AS precision, information_schema._pg_numeric_precision_radix(atttypid, atttypmod) AS radix, information_schema._pg_numeric_scale(atttypid, atttypmod) AS scale, information_schema._pg_datetime_precision(atttypid, atttypmod) AS time FROM pg_attribute WHERE attrelid = 'orders'::regclass AND attnum > 0
----
=> attname	length	bytes	precision	radix	scale	time
id	\N	\N	64	2	0	\N
customer	\N	\N	32	2	0	\N
price	\N	\N	12	10	2	\N
note	\N	1073741824	\N	\N	\N	\N
placed	\N	\N	\N	\N	\N	6
day	\N	\N	\N	\N	\N	0
paid	\N	\N	\N	\N	\N	\N
tags	\N	\N	\N	\N	\N	\N

-- patterns in an array
SELECT relname FROM pg_class WHERE relname LIKE ANY (ARRAY['ord%s', 'reg%']) AND relname NOT LIKE ANY ('{order%}') AND relname = 'region'
----
=> relname
region

-- names with numbers
SELECT nameconcatoid(proname, oid) FROM pg_proc WHERE proname = 'array_in'
----
=> nameconcatoid
array_in_750

-- elements of vectors
SELECT proargtypes[0], proargtypes[1] AS second, proargtypes[9] IS NULL AS none FROM pg_proc WHERE proname = 'array_in'
----
=> proargtypes	second	none
2275	26	t

-- oidvectortypes
SELECT oidvectortypes(proargtypes) FROM pg_proc WHERE proname = 'array_in'
----
=> oidvectortypes
cstring, oid, integer
